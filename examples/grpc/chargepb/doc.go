// Package chargepb is what protoc makes of ../charge.proto.
package chargepb
