package otellock

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockkit/lockkit/core"
)

// spanFrom is the maximum duration of a successful, uncontended acquire without a span.
const spanFrom = time.Millisecond

// acquireSpan writes the span of a completed acquire, if ctx has a recorded span and the
// acquire needs a span.
func (t *Telemetry) acquireSpan(ctx context.Context, e *core.Event, s *series, end ended) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return // creating a span that is not recorded would take longer than the measurement
	}
	if !t.acquires && !e.Contended && end.why == noError && e.Wait <= spanFrom {
		return
	}
	attrs := s.ofAcquire(e.Mode, end, e.Contended)
	if e.Err != nil {
		var b *core.BusyError
		if errors.As(e.Err, &b) && b.Waiting > 0 {
			attrs = append(attrs, keyWaiting.Int(b.Waiting))
		}
	}
	t.span(ctx, "acquire "+s.label, e.Wait, end.why != noError, attrs)
}

// holdSpan writes the span of a lease at its end, if WithHoldSpans is set and ctx has a
// recorded span.
func (t *Telemetry) holdSpan(ctx context.Context, e *core.Event, s *series, o outcome) {
	if t.holds && trace.SpanFromContext(ctx).IsRecording() {
		t.span(ctx, "hold "+s.label, e.Held, o == lost, s.ofHold(e.Mode, o))
	}
}

// span writes a span that ends now and has the duration took. Its status has no text,
// because a server's error text can contain any data.
func (t *Telemetry) span(ctx context.Context, name string, took time.Duration, bad bool, attrs []attribute.KeyValue) {
	now := time.Now()
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(now.Add(-took)),
		trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(attrs...))
	if bad {
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(now))
}
