package otellock

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
)

// ScopeName is the name of the instrumentation scope of all metrics and spans.
const ScopeName = "github.com/lockkit/lockkit/core/otellock"

// These are the bounds of the histograms, in seconds. A free key takes a fraction of a
// millisecond, and waits usually take up to seconds. A hold lasts from a fraction of a
// millisecond to the duration of a batch job.
var (
	acquireBounds = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	holdBounds    = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800}
)

// Telemetry is a core.Observer that writes metrics and spans. It is safe for concurrent
// use. It allocates memory only for the first measurement with new attributes, and for
// spans.
type Telemetry struct {
	names    *names
	acquires bool // all acquires have spans
	holds    bool // leases have spans

	tracer trace.Tracer
	meter  metric.Meter
	gauges gauges

	acquire, hold, call                             metric.Float64Histogram
	losses, extensions, overruns, cleanups, misuses metric.Int64Counter
	passes                                          metric.Int64ObservableCounter
}

// New returns a Telemetry. It sends nothing and starts no goroutine. Several Lockers can
// share a Telemetry. Do not create two with the same MeterProvider and the same
// attributes, because the second would overwrite values of the first.
//
// It returns an error matching core.ErrInvalid if an option is nil or not allowed. If
// the meter provider refuses an instrument, New returns the provider's error.
func New(opts ...Option) (*Telemetry, error) {
	c := config{names: 100}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("otellock: new: an option is nil: %w", core.ErrInvalid)
		}
		o(&c)
	}
	if c.bad != nil {
		return nil, fmt.Errorf("otellock: new: %w", c.bad)
	}
	if c.meters == nil {
		c.meters = otel.GetMeterProvider()
	}
	if c.tracers == nil {
		c.tracers = otel.GetTracerProvider()
	}
	v := version()
	t := &Telemetry{
		names:    newNames(c.names, c.attributes),
		acquires: c.acquires,
		holds:    c.holds,
		tracer:   c.tracers.Tracer(ScopeName, trace.WithInstrumentationVersion(v)),
		meter:    c.meters.Meter(ScopeName, metric.WithInstrumentationVersion(v)),
	}
	if err := t.instruments(); err != nil {
		return nil, fmt.Errorf("otellock: new: %w", err)
	}
	return t, nil
}

// version returns the version of the kit in this program, or "" if it is not known.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == "github.com/lockkit/lockkit" {
			return m.Version
		}
	}
	return ""
}

func (t *Telemetry) instruments() error {
	var bad []error
	seconds := func(name, what string, bounds []float64) metric.Float64Histogram {
		h, err := t.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(bounds...))
		bad = append(bad, err)
		return h
	}
	count := func(name, unit, what string) metric.Int64Counter {
		c, err := t.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
		bad = append(bad, err)
		return c
	}
	t.acquire = seconds("lockkit.acquire.duration", "How long acquires of locks took, with their waiting.", acquireBounds)
	t.hold = seconds("lockkit.hold.duration", "How long leases were held.", holdBounds)
	t.call = seconds("lockkit.call.duration", "How long calls took that run once, with their waiting and their work.", holdBounds)
	t.losses = count("lockkit.losses", "{lease}", "Leases that were lost.")
	t.extensions = count("lockkit.extensions", "{extension}", "Attempts to extend leases.")
	t.overruns = count("lockkit.overruns", "{lease}", "Leases that were held for longer than MaxHold.")
	t.cleanups = count("lockkit.cleanups", "{claim}", "Claims of unknown outcome that were cleaned up.")
	t.misuses = count("lockkit.misuses", "{misuse}", "Set-ups that cannot work.")
	var err error
	t.passes, err = t.meter.Int64ObservableCounter("lockkit.passes", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases whose hold was passed on within the process."), metric.WithInt64Callback(t.collectPasses))
	return errors.Join(append(bad, err, t.gauges.instruments(t.meter))...)
}

// collectPasses reports the counter of passes for each name that has passes. A key with
// many waiters can be passed on thousands of times per second. So passes are counted in
// memory, which takes less time than a measurement.
func (t *Telemetry) collectPasses(_ context.Context, to metric.Int64Observer) error {
	for s := range t.names.all {
		if n := s.passes.Load(); n > 0 {
			to.Observe(n, metric.WithAttributes(s.base...))
		}
	}
	return nil
}

// Observe measures e. It ignores kinds of events that have no instrument.
func (t *Telemetry) Observe(ctx context.Context, e core.Event) {
	switch e.Kind {
	case core.Acquired:
		t.acquired(ctx, &e, ended{outcome: acquired})
	case core.GaveUp:
		t.acquired(ctx, &e, endOf(ctx, e.Err))
	case core.Released:
		switch {
		case e.Err == nil:
			t.held(ctx, &e, released)
		case errors.Is(e.Err, core.ErrLost):
			t.held(ctx, &e, lost)
		default:
			t.held(ctx, &e, unconfirmed)
		}
	case core.Lost:
		t.held(ctx, &e, lost)
	case core.Extended:
		t.extensions.Add(ctx, 1, t.of(ctx, e.Name).failed(noError)...)
	case core.ExtendFailed:
		t.extensions.Add(ctx, 1, t.of(ctx, e.Name).failed(errorType(e.Err))...)
	case core.CleanedUp:
		t.cleanups.Add(ctx, 1, t.of(ctx, e.Name).failed(errorType(e.Err))...)
	case core.Overrun:
		t.overruns.Add(ctx, 1, t.of(ctx, e.Name).failed(noError)...)
	case core.PassedOn:
		t.of(ctx, e.Name).passes.Add(1)
	case core.Misused:
		t.misuses.Add(ctx, 1, t.of(ctx, e.Name).failed(noError)...)
	case core.Ran, core.Replayed, core.Refused:
		t.called(ctx, &e)
	}
}

func (t *Telemetry) acquired(ctx context.Context, e *core.Event, end ended) {
	s := t.of(ctx, e.Name)
	if e.Reentered {
		return
	}
	t.acquire.Record(ctx, e.Wait.Seconds(), s.acquired(e.Mode, end, e.Contended)...)
	t.acquireSpan(ctx, e, s, end)
}

// held measures a lease at the lease's end.
func (t *Telemetry) held(ctx context.Context, e *core.Event, o outcome) {
	s := t.of(ctx, e.Name)
	t.hold.Record(ctx, e.Held.Seconds(), s.held(e.Mode, o)...)
	if o == lost {
		t.losses.Add(ctx, 1, s.failed(noError)...)
	}
	t.holdSpan(ctx, e, s, o)
}

// called measures a call of package once. It also measures the acquire of a call that
// was replayed or is unreplayable. No other event reports that acquire.
func (t *Telemetry) called(ctx context.Context, e *core.Event) {
	o := failed
	switch {
	case e.Kind == core.Ran && e.Err == nil:
		o = ran
	case e.Kind == core.Ran:
	case e.Kind == core.Replayed:
		o = replayed
	case errors.Is(e.Err, once.ErrInProgress):
		o = inProgress
	case errors.Is(e.Err, once.ErrMismatch):
		o = mismatch
	case errors.Is(e.Err, once.ErrUnreplayable):
		o = unreplayable
	case errors.Is(e.Err, once.ErrIndeterminate):
		o = indeterminate
	}
	if o == replayed || o == unreplayable {
		t.acquired(ctx, e, ended{outcome: answered})
	}
	t.call.Record(ctx, (e.Wait + e.Held).Seconds(), t.of(ctx, e.Name).called(o, e.Attempt > 1)...)
}

// of returns the series of a name. If the series is new, of initializes the counter of
// losses with 0. At the first name without its own series, it also counts and reports
// the misuse that MaxNames describes.
func (t *Telemetry) of(ctx context.Context, name string) *series {
	s, isNew := t.names.of(name)
	if !isNew {
		return s
	}
	t.losses.Add(ctx, 0, s.failed(noError)...)
	if s == t.names.other {
		t.misuses.Add(ctx, 1, s.failed(noError)...)
		otel.Handle(fmt.Errorf("otellock: more than %d names of locks: the others are reported as %s", t.names.most, otherName))
	}
	return s
}

// endOf returns the result of an acquire under ctx that failed with err. A store's own
// error can match context.DeadlineExceeded, although ctx is not done.
func endOf(ctx context.Context, err error) ended {
	end := ctx.Err()
	gone := end != nil && errors.Is(err, end)
	late := gone && end == context.DeadlineExceeded && errors.Is(err, core.ErrUnavailable)
	switch {
	case gone && !late:
		return ended{outcome: canceled}
	case errors.Is(err, core.ErrBusy) && !late:
		return ended{outcome: busy}
	}
	return ended{outcome: failed, why: errorType(err)}
}
