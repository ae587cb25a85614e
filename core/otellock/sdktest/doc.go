// Package sdktest has no code but tests: package otellock with OpenTelemetry's SDK and
// locks in a real Redis. It is a Go module of its own, so that the SDK stays out of the
// kit's go.mod.
package sdktest
