// Package chargepb is the code that protoc generates from ../charge.proto.
package chargepb
