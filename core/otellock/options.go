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

// MaxNames limits the number of lock names with their own series. The default is 100,
// and the minimum is 1. Locks with later names are reported together as "_OTHER". At
// the first such lock, the Telemetry counts a misuse of the name "_OTHER" and reports
// an error to otel.Handle.
//
// The SDK has a limit of its own, by default 2000 series for each instrument. A name
// has up to 7 series of lockkit.acquire.duration for each of the modes that it is used
// in. With a larger n, set the SDK's limit too (metric.WithCardinalityLimit). Otherwise
// it reports later series together, without their name, outcome and error.
func MaxNames(n int) Option {
	return func(c *config) {
		if n < 1 {
			c.refuse(fmt.Errorf("MaxNames: %d is out of range (at least 1)", n))
		}
		c.names = n
	}
}

// WithAttributes adds constant attributes to each measurement and span. Attributes of
// this package take precedence over attributes with the same key.
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

// WithAllAcquires writes a span for every measured acquire under a recorded parent. By
// default only acquires that found the key taken, failed, or took more than a
// millisecond have a span.
func WithAllAcquires() Option { return func(c *config) { c.acquires = true } }

// WithHoldSpans writes a span "hold order" for every lease under a recorded parent, at
// the lease's end, in addition to the span of its acquire. By default leases have no
// spans, because many leases last nearly as long as the span of their handler. The span
// is created at the end, so it cannot be the parent of spans under the lease.
func WithHoldSpans() Option { return func(c *config) { c.holds = true } }

func (c *config) refuse(err error) {
	if c.bad == nil {
		c.bad = fmt.Errorf("%w: %w", err, core.ErrInvalid)
	}
}
