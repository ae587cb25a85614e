package otellock

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockkit/lockkit/core"
)

// gauges report the state of the watched Lockers when metrics are collected.
type gauges struct {
	active, pending, cleanups  metric.Int64ObservableUpDownCounter
	oldestLease, oldestRequest metric.Float64ObservableGauge

	registering  sync.Mutex // held during calls of the provider, while mu is not held
	registration metric.Registration

	mu      sync.Mutex
	lockers map[*core.Locker]int // the number of times that each Locker is watched
	counts  map[counted]*core.LockCount
	oldest  map[*series]*core.LockCount
}

type counted struct {
	of   *series
	mode core.Mode
}

func (g *gauges) instruments(m metric.Meter) error {
	var bad [5]error
	g.active, bad[0] = m.Int64ObservableUpDownCounter("lockkit.lease.active",
		metric.WithUnit("{lease}"), metric.WithDescription("Leases that are held."))
	g.pending, bad[1] = m.Int64ObservableUpDownCounter("lockkit.request.pending",
		metric.WithUnit("{request}"), metric.WithDescription("Acquires that are under way."))
	g.oldestLease, bad[2] = m.Float64ObservableGauge("lockkit.lease.age.max",
		metric.WithUnit("s"), metric.WithDescription("For how long the lease that was acquired first has been held."))
	g.oldestRequest, bad[3] = m.Float64ObservableGauge("lockkit.request.age.max",
		metric.WithUnit("s"), metric.WithDescription("For how long the acquire that began first has been under way."))
	g.cleanups, bad[4] = m.Int64ObservableUpDownCounter("lockkit.cleanup.pending",
		metric.WithUnit("{claim}"), metric.WithDescription("Claims that are released in the background."))
	return errors.Join(bad[:]...)
}

// Watch makes the gauges report the leases and requests of l until stop is called. The
// values are read from l's Snapshot when metrics are collected. For several Lockers,
// the numbers of leases, requests and cleanups are added up, and each age is the
// maximum. If a reported name has no more leases and requests, it is reported with 0.
// Watch does not prevent l from being closed. A second call of stop changes nothing.
// Watch panics if l is nil.
func (t *Telemetry) Watch(l *core.Locker) (stop func()) {
	if l == nil {
		panic("otellock: locker is nil")
	}
	t.watch(l, 1)
	return sync.OnceFunc(func() { t.watch(l, -1) })
}

// watch adds more to the number of times that l is watched.
func (t *Telemetry) watch(l *core.Locker, more int) {
	g := &t.gauges
	g.registering.Lock()
	defer g.registering.Unlock()
	g.mu.Lock()
	if g.lockers == nil {
		g.lockers = make(map[*core.Locker]int)
		g.counts, g.oldest = make(map[counted]*core.LockCount), make(map[*series]*core.LockCount)
	}
	if g.lockers[l] += more; g.lockers[l] == 0 {
		delete(g.lockers, l)
	}
	n := len(g.lockers)
	if n == 0 {
		clear(g.counts)
		clear(g.oldest)
	}
	g.mu.Unlock()

	var err error
	switch {
	case n > 0 && g.registration == nil:
		g.registration, err = t.meter.RegisterCallback(t.collect, g.active, g.pending, g.cleanups, g.oldestLease, g.oldestRequest)
	case n == 0 && g.registration != nil:
		err, g.registration = g.registration.Unregister(), nil
	}
	if err != nil {
		otel.Handle(err)
	}
}

func (t *Telemetry) collect(ctx context.Context, to metric.Observer) error {
	g := &t.gauges
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.lockers) == 0 {
		return nil
	}
	for _, c := range g.counts {
		*c = core.LockCount{}
	}
	for _, c := range g.oldest {
		*c = core.LockCount{}
	}
	cleanups := 0
	for l := range g.lockers {
		now := l.Snapshot()
		cleanups += now.CleanUps
		for _, c := range now.Locks {
			s := t.of(ctx, c.Name)
			count(g.counts, counted{s, known(c.Mode)}, c)
			count(g.oldest, s, c)
		}
	}
	to.ObserveInt64(g.cleanups, int64(cleanups), metric.WithAttributes(t.names.constant...))
	for of, c := range g.counts {
		set := metric.WithAttributes(of.of.with(noError, keyMode.String(of.mode.String()))...)
		to.ObserveInt64(g.active, int64(c.Held), set)
		to.ObserveInt64(g.pending, int64(c.Waiting), set)
	}
	for s, c := range g.oldest {
		set := metric.WithAttributes(s.base...)
		to.ObserveFloat64(g.oldestLease, c.OldestHeld.Seconds(), set)
		to.ObserveFloat64(g.oldestRequest, c.OldestWaiting.Seconds(), set)
	}
	return nil
}

func count[K comparable](all map[K]*core.LockCount, of K, c core.LockCount) {
	sum := all[of]
	if sum == nil {
		sum = &core.LockCount{}
		all[of] = sum
	}
	sum.Held += c.Held
	sum.Waiting += c.Waiting
	sum.OldestHeld = max(sum.OldestHeld, c.OldestHeld)
	sum.OldestWaiting = max(sum.OldestWaiting, c.OldestWaiting)
}
