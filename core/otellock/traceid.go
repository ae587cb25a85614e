package otellock

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

// TraceID returns the trace ID of ctx as 32 hexadecimal digits, or "" if ctx has no
// trace. It is for the card of a process:
//
//	core.WithCard(core.Card{Service: "payments", Trace: otellock.TraceID})
func TraceID(ctx context.Context) string {
	if s := trace.SpanContextFromContext(ctx); s.HasTraceID() {
		return s.TraceID().String()
	}
	return ""
}
