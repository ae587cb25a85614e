package otellock

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

// TraceID returns the ID of the trace that ctx is part of, 32 digits, or "" if it is
// part of none. It is for the card of a process:
//
//	core.WithCard(core.Card{Service: "payments", Trace: otellock.TraceID})
func TraceID(ctx context.Context) string {
	if s := trace.SpanContextFromContext(ctx); s.HasTraceID() {
		return s.TraceID().String()
	}
	return ""
}
