// Package sdktest tests package otellock with OpenTelemetry's SDK and locks in a real
// Redis. It is a separate Go module, so that the SDK stays out of the kit's go.mod.
package sdktest
