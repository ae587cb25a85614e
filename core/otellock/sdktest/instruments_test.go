package sdktest_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/testserver"
)

var units = map[string]string{
	"lockkit.acquire.duration": "s",
	"lockkit.hold.duration":    "s",
	"lockkit.call.duration":    "s",
	"lockkit.losses":           "{lease}",
	"lockkit.extensions":       "{extension}",
	"lockkit.overruns":         "{lease}",
	"lockkit.cleanups":         "{claim}",
	"lockkit.passes":           "{lease}",
	"lockkit.misuses":          "{misuse}",
	"lockkit.lease.active":     "{lease}",
	"lockkit.request.pending":  "{request}",
	"lockkit.lease.age.max":    "s",
	"lockkit.request.age.max":  "s",
	"lockkit.cleanup.pending":  "{claim}",
}

// everything makes each instrument measure something.
func everything(t *testing.T, s *stage) {
	t.Helper()
	playCalls(t, s)
	try(t, s.locks, "held:1")
	for k := core.Acquired; k.String() != "unknown"; k++ {
		s.tel.Observe(t.Context(), core.Event{Kind: k, Name: "order", Mode: core.ModeExclusive, Wait: time.Second, Held: time.Second, Err: once.ErrMismatch})
	}
}

// TestNamesAndUnits checks rules of OpenTelemetry's semantic conventions,
// general/naming and general/metrics.
func TestNamesAndUnits(t *testing.T) {
	t.Parallel()
	s := newStage(t, testserver.StartRedis(t))
	defer s.tel.Watch(s.locks)()
	everything(t, s)
	all := s.metrics(t)
	if got, want := slices.Sorted(maps.Keys(all)), slices.Sorted(maps.Keys(units)); !slices.Equal(got, want) {
		t.Errorf("the instruments are %q, want %q", got, want)
	}
	name := regexp.MustCompile(`^lockkit(\.[a-z][a-z0-9]*(_[a-z0-9]+)*)+$`)
	attr := regexp.MustCompile(`^(lockkit\.(name|mode|outcome|contended|repeated)|error\.type)$`)
	unit := regexp.MustCompile(`^(s|\{[a-z]+\})$`)
	for _, m := range all {
		if !name.MatchString(m.Name) || strings.HasSuffix(m.Name, "total") || strings.Contains(m.Name, "second") {
			t.Errorf("%s is no name", m.Name)
		}
		if m.Unit != units[m.Name] || !unit.MatchString(m.Unit) {
			t.Errorf("%s is in %q", m.Name, m.Unit)
		}
		if !strings.HasSuffix(m.Description, ".") {
			t.Errorf("%s: %q says nothing", m.Name, m.Description)
		}
		if s, ok := m.Data.(metricdata.Sum[int64]); ok {
			plural := strings.HasSuffix(m.Name, "s") || strings.HasSuffix(m.Name, "es")
			if s.IsMonotonic != plural {
				t.Errorf("%s: a counter has a plural name, what goes up and down a singular one", m.Name)
			}
		}
		if h, ok := m.Data.(metricdata.Histogram[float64]); ok != strings.HasSuffix(m.Name, ".duration") || ok && m.Unit != "s" {
			t.Errorf("%s is a %T in %s", m.Name, h, m.Unit)
		}
		for _, series := range attributes(m) {
			for _, kv := range series {
				if !attr.MatchString(kv) {
					t.Errorf("%s has the attribute %s", m.Name, kv)
				}
			}
		}
	}
}

func TestBounds_Seconds(t *testing.T) {
	t.Parallel()
	s := newStage(t, testserver.StartRedis(t))
	everything(t, s)
	hold := "[0.001 0.005 0.01 0.05 0.1 0.5 1 5 10 30 60 300 1800]"
	want := map[string]string{
		"lockkit.acquire.duration": "[0.0005 0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 30 60]",
		"lockkit.hold.duration":    hold, "lockkit.call.duration": hold,
	}
	for name, m := range s.metrics(t) {
		h, ok := m.Data.(metricdata.Histogram[float64])
		if !ok {
			continue
		}
		for _, p := range h.DataPoints {
			if got := fmt.Sprint(p.Bounds); got != want[name] {
				t.Errorf("%s has the bounds %s, want %s", name, got, want[name])
			}
		}
		delete(want, name)
	}
	if len(want) != 0 {
		t.Errorf("not seen: %v", want)
	}
}

// attributes returns the keys of the attributes of each series.
func attributes(m metricdata.Metrics) (all [][]string) {
	switch data := m.Data.(type) {
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			all = append(all, nil)
			for _, kv := range p.Attributes.ToSlice() {
				all[len(all)-1] = append(all[len(all)-1], string(kv.Key))
			}
		}
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			all = append(all, nil)
			for _, kv := range p.Attributes.ToSlice() {
				all[len(all)-1] = append(all[len(all)-1], string(kv.Key))
			}
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			all = append(all, nil)
			for _, kv := range p.Attributes.ToSlice() {
				all[len(all)-1] = append(all[len(all)-1], string(kv.Key))
			}
		}
	}
	return all
}

func TestMeasurements_Allocations(t *testing.T) { // not parallel: counts allocations
	s := newStage(t, testserver.StartRedis(t))
	for _, e := range []core.Event{
		{Kind: core.Acquired, Name: "order", Mode: core.ModeExclusive, Wait: time.Millisecond, Contended: true},
		{Kind: core.GaveUp, Name: "order", Mode: core.ModeShared, Err: core.ErrUnavailable},
		{Kind: core.Released, Name: "order", Mode: core.ModeExclusive, Held: time.Second},
		{Kind: core.Lost, Name: "order", Mode: core.ModeExclusive, Held: time.Second, Err: core.ErrLost},
		{Kind: core.Extended, Name: "order"},
		{Kind: core.PassedOn, Name: "order"},
		{Kind: core.Replayed, Name: "order", Mode: core.ModeRun, Attempt: 1},
	} {
		// A measurement that stores an exemplar allocates memory. The more
		// measurements were made, the fewer store one.
		for range 1000 {
			s.tel.Observe(context.Background(), e)
		}
		if n := testing.AllocsPerRun(1000, func() { s.tel.Observe(context.Background(), e) }); n != 0 {
			t.Errorf("%s: %v allocations", e.Kind, n)
		}
	}
}
