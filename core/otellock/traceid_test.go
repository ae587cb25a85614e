package otellock_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/lockkit/lockkit/core/otellock"
)

func TestTraceID(t *testing.T) {
	t.Parallel()
	if id := otellock.TraceID(context.Background()); id != "" {
		t.Errorf("outside of a trace it is %q", id)
	}
	s := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{0x4b, 15: 0x36}, SpanID: trace.SpanID{1}})
	if id := otellock.TraceID(trace.ContextWithSpanContext(t.Context(), s)); id != "4b000000000000000000000000000036" {
		t.Errorf("it is %q", id)
	}
}
