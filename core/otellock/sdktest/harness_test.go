package sdktest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/otellock"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestMain(m *testing.M) {
	logging.Disable() // clients log each server that a test has stopped
	m.Run()
}

// patience limits how long a test waits for an event.
const patience = 60 * time.Second

// stage is a Locker with Telemetry on a Redis behind a proxy, and another Locker without
// Telemetry on the same Redis.
type stage struct {
	reader        *sdk.ManualReader
	spans         *tracetest.SpanRecorder
	tracers       *trace.TracerProvider
	tel           *otellock.Telemetry
	locks, others *core.Locker
	proxy         *testserver.Proxy
	client        *redis.Client // connected without the proxy
	prefix        string
	taken         chan struct{} // receives once for each caller that found its key taken
}

var stages atomic.Int64

func newStage(t testing.TB, server *testserver.Redis, opts ...otellock.Option) *stage {
	t.Helper()
	s := &stage{
		reader: sdk.NewManualReader(),
		spans:  tracetest.NewSpanRecorder(),
		proxy:  testserver.NewRedisProxy(t, server.Addr),
		client: testclient.Redis(t, server.Addr),
		prefix: fmt.Sprintf("stage-%d:", stages.Add(1)),
		taken:  make(chan struct{}, 100),
	}
	s.tracers = trace.NewTracerProvider(trace.WithSpanProcessor(s.spans))
	tel, err := otellock.New(append([]otellock.Option{
		otellock.WithMeterProvider(sdk.NewMeterProvider(sdk.WithReader(s.reader))), otellock.WithTracerProvider(s.tracers),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	s.tel = tel
	s.locks = s.locker(t, testclient.Redis(t, s.proxy.Addr), core.WithObserver(core.Observers(tel, s)))
	s.others = s.locker(t, s.client)
	return s
}

func (s *stage) locker(t testing.TB, client *redis.Client, opts ...core.Option) *core.Locker {
	t.Helper()
	store, err := redisstore.New(client, redisstore.WithPrefix(s.prefix))
	if err != nil {
		t.Fatal(err)
	}
	l, err := core.New(store, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.proxy.Up()
		s.proxy.Heal()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Close(ctx)
		_ = store.Close()
	})
	return l
}

// Observe records that a caller found its key taken.
func (s *stage) Observe(_ context.Context, e core.Event) {
	if e.Kind == core.Busy {
		select {
		case s.taken <- struct{}{}:
		default:
		}
	}
}

// wipe deletes the locks while they are held.
func (s *stage) wipe(t *testing.T) {
	t.Helper()
	keys, err := s.client.Keys(t.Context(), s.prefix+"*").Result()
	if err == nil && len(keys) > 0 {
		err = s.client.Del(t.Context(), keys...).Err()
	}
	if err != nil || len(keys) == 0 {
		t.Fatalf("%d keys deleted, %v", len(keys), err)
	}
}

// metrics returns the metrics of all instruments that have measured something, by name.
func (s *stage) metrics(t testing.TB) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := s.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	by := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		if scope.Scope.Name != otellock.ScopeName {
			t.Errorf("the scope is %q", scope.Scope.Name)
		}
		for _, m := range scope.Metrics {
			by[m.Name] = m
		}
	}
	return by
}

// points returns the series of all instruments with their values, by the instrument's
// name without "lockkit." and the values of the attributes: "losses order" → 1. The
// value of a histogram is the number of its measurements.
func (s *stage) points(t testing.TB) map[string]float64 {
	t.Helper()
	points := map[string]float64{}
	for name, m := range s.metrics(t) {
		note := func(set attribute.Set, value float64) {
			words := []string{strings.TrimPrefix(name, "lockkit.")}
			for _, kv := range set.ToSlice() {
				words = append(words, kv.Value.String())
			}
			points[strings.Join(words, " ")] = value
		}
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				note(p.Attributes, float64(p.Count))
			}
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				note(p.Attributes, float64(p.Value))
			}
		case metricdata.Gauge[float64]:
			for _, p := range data.DataPoints {
				note(p.Attributes, p.Value)
			}
		default:
			t.Errorf("%s is a %T", name, data)
		}
	}
	return points
}

// until waits until the series has at least the value least.
func (s *stage) until(t *testing.T, series string, least float64) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		points := s.points(t)
		if points[series] >= least {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not %g: %s", series, least, lines(points))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// lines returns the points that are not 0, in a readable form.
func lines(points map[string]float64) string {
	var all []string
	for _, series := range slices.Sorted(maps.Keys(points)) {
		if points[series] != 0 {
			all = append(all, fmt.Sprintf("%s: %g", series, points[series]))
		}
	}
	return strings.Join(all, "\n")
}
