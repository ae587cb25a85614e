package otellock

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockkit/lockkit/core"
)

// Option is a setting of New.
type Option func(*config)

type config struct {
	meters     metric.MeterProvider
	tracers    trace.TracerProvider
	names      int
	attributes []attribute.KeyValue
	acquires   bool
	holds      bool
	bad        error // the first error that an option reported
}

// WithMeterProvider writes metrics to p. The default, also for a nil p, is the global
// provider.
func WithMeterProvider(p metric.MeterProvider) Option { return func(c *config) { c.meters = p } }

// WithTracerProvider writes spans to p. The default, also for a nil p, is the global
// provider.
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.tracers = p } }

// MaxNames bounds how many names of locks have series of their own. The default is 100;
// the range begins at 1. The locks with later names are reported together as "_OTHER".
// Once for a Telemetry, this is counted as a misuse of that name and reported to
// otel.Handle.
func MaxNames(n int) Option {
	return func(c *config) {
		if n < 1 {
			c.refuse(fmt.Errorf("MaxNames: %d is out of range (at least 1)", n))
		}
		c.names = n
	}
}

// WithAttributes adds constant attributes to each measurement and span. Those of this
// package win over one of the same name.
func WithAttributes(a ...attribute.KeyValue) Option {
	return func(c *config) {
		for _, kv := range a {
			if !kv.Valid() {
				c.refuse(errors.New("WithAttributes: an attribute has no key"))
			}
		}
		c.attributes = append(c.attributes, a...)
	}
}

// WithAllAcquires makes a span of every acquire under a recorded parent. By default
// only those are spans that found the key taken, failed, or took more than a
// millisecond.
func WithAllAcquires() Option { return func(c *config) { c.acquires = true } }

// WithHoldSpans makes a span "hold order" of every lease under a recorded parent, at
// the lease's end, in addition to that of its acquire. By default leases are no spans.
// The span covers the handler's span nearly exactly. Because it is made at the end, it
// cannot be the parent of what happened under the lease.
func WithHoldSpans() Option { return func(c *config) { c.holds = true } }

func (c *config) refuse(err error) {
	if c.bad == nil {
		c.bad = fmt.Errorf("%w: %w", err, core.ErrInvalid)
	}
}
