// Package sdktest tests package otellock with OpenTelemetry's SDK and locks in a real
// Redis. It is a Go module of its own, which keeps the SDK out of the kit's go.mod.
package sdktest
