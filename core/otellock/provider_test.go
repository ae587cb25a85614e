package otellock_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockkit/lockkit/core/otellock"
)

// provider records measurements and spans, one line each. It does not use the SDK: only
// package sdktest, a separate module, imports the SDK.
type provider struct {
	noop.MeterProvider
	mu    sync.Mutex
	lines []string
	calls map[*registration]metric.Callback
	asked []observed64 // counters that report at a collection
}

type observed64 struct {
	name string
	ask  metric.Int64Callback
}

func (p *provider) Meter(string, ...metric.MeterOption) metric.Meter { return &meter{p: p} }

type meter struct {
	noop.Meter
	p *provider
}

func (p *provider) note(name string, value float64, set attribute.Set, what ...string) {
	line := fmt.Sprintf("%s %g", name, value)
	for _, kv := range set.ToSlice() {
		line += fmt.Sprintf(" %s=%v", kv.Key, kv.Value.AsInterface())
	}
	for _, w := range what {
		line += " " + w
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, line)
}

func (p *provider) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := p.lines
	p.lines = nil
	slices.Sort(lines)
	return lines
}

func (m *meter) Float64Histogram(name string, _ ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return &histogram{p: m.p, name: name}, nil
}

type histogram struct {
	noop.Float64Histogram
	p    *provider
	name string
}

func (h *histogram) Record(_ context.Context, v float64, opts ...metric.RecordOption) {
	h.p.note(h.name, v, metric.NewRecordConfig(opts).Attributes())
}

func (m *meter) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return &counter{p: m.p, name: name}, nil
}

type counter struct {
	noop.Int64Counter
	p    *provider
	name string
}

func (c *counter) Add(_ context.Context, n int64, opts ...metric.AddOption) {
	c.p.note(c.name, float64(n), metric.NewAddConfig(opts).Attributes())
}

func (m *meter) Int64ObservableCounter(name string, opts ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	config := metric.NewInt64ObservableCounterConfig(opts...)
	for _, ask := range config.Callbacks() {
		m.p.asked = append(m.p.asked, observed64{name, ask})
	}
	return noop.Int64ObservableCounter{}, nil
}

// observation receives the value of a counter that reports at a collection.
type observation struct {
	noop.Int64Observer
	p    *provider
	name string
}

func (o observation) Observe(n int64, opts ...metric.ObserveOption) {
	o.p.note(o.name, float64(n), metric.NewObserveConfig(opts).Attributes())
}

func (m *meter) Int64ObservableUpDownCounter(name string, _ ...metric.Int64ObservableUpDownCounterOption) (metric.Int64ObservableUpDownCounter, error) {
	return &upDown{name: name}, nil
}

type upDown struct {
	noop.Int64ObservableUpDownCounter
	name string
}

func (m *meter) Float64ObservableGauge(name string, _ ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	return &gauge{name: name}, nil
}

type gauge struct {
	noop.Float64ObservableGauge
	name string
}

func (m *meter) RegisterCallback(f metric.Callback, _ ...metric.Observable) (metric.Registration, error) {
	r := &registration{p: m.p}
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	if m.p.calls == nil {
		m.p.calls = map[*registration]metric.Callback{}
	}
	m.p.calls[r] = f
	return r, nil
}

type registration struct {
	noop.Registration
	p *provider
}

func (r *registration) Unregister() error {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	delete(r.p.calls, r)
	return nil
}

// ask makes the counters that report at a collection report now.
func (p *provider) ask(t *testing.T) {
	t.Helper()
	for _, c := range p.asked {
		if err := c.ask(t.Context(), observation{p: p, name: c.name}); err != nil {
			t.Error(err)
		}
	}
}

// collect makes the gauges report, and returns their values.
func (p *provider) collect(t *testing.T) []string {
	t.Helper()
	p.mu.Lock()
	calls := maps.Clone(p.calls)
	p.mu.Unlock()
	if len(calls) > 1 {
		t.Errorf("%d callbacks are registered", len(calls))
	}
	gauges := &provider{}
	for _, f := range calls {
		if err := f(t.Context(), observer{p: gauges}); err != nil {
			t.Error(err)
		}
	}
	return gauges.take()
}

type observer struct {
	noop.Observer
	p *provider
}

func (o observer) ObserveInt64(of metric.Int64Observable, n int64, opts ...metric.ObserveOption) {
	o.p.note(of.(*upDown).name, float64(n), metric.NewObserveConfig(opts).Attributes())
}

func (o observer) ObserveFloat64(of metric.Float64Observable, v float64, opts ...metric.ObserveOption) {
	o.p.note(of.(*gauge).name, v, metric.NewObserveConfig(opts).Attributes())
}

// tracers creates spans, all of which are recorded.
type tracers struct {
	tracenoop.TracerProvider
	spans *provider
}

func (t *tracers) Tracer(string, ...trace.TracerOption) trace.Tracer { return &tracer{t: t} }

type tracer struct {
	tracenoop.Tracer
	t *tracers
}

func (t *tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	s := &span{t: t.t, name: name, start: trace.NewSpanStartConfig(opts...)}
	return trace.ContextWithSpan(ctx, s), s
}

type span struct {
	tracenoop.Span
	t      *tracers
	name   string
	start  trace.SpanConfig
	status string
}

func (s *span) IsRecording() bool { return true }

func (s *span) SetStatus(code codes.Code, text string) { s.status = code.String() + text }

func (s *span) End(opts ...trace.SpanEndOption) {
	end := trace.NewSpanEndConfig(opts...)
	took := end.Timestamp().Sub(s.start.Timestamp()).Seconds()
	more := []string{s.start.SpanKind().String()}
	if s.status != "" {
		more = append(more, s.status)
	}
	s.t.spans.note("span "+s.name, took, attribute.NewSet(s.start.Attributes()...), more...)
}

func observed(t *testing.T, opts ...otellock.Option) (*otellock.Telemetry, *provider) {
	t.Helper()
	p := &provider{}
	tel, err := otellock.New(append([]otellock.Option{
		otellock.WithMeterProvider(p), otellock.WithTracerProvider(&tracers{spans: p}),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return tel, p
}

func recorded(ctx context.Context) context.Context {
	ctx, _ = (&tracer{}).Start(ctx, "parent")
	return ctx
}

// refusing is a provider whose meters cannot create counters.
type refusing struct{ noop.MeterProvider }

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ noop.Meter }

func (refusingMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return nil, errOdd
}
