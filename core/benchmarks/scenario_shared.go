package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// oneKey returns a scenario with goroutines of one process that want the same key.
func oneKey() scenario {
	return scenario{
		name: "one-key", title: "64 goroutines, one key, one process",
		about: "Acquire, an empty critical section, release, again. Least and most are what the unluckiest and the luckiest goroutine got of the fair share. " + perCycle,
		columns: cycleColumns(
			Column{Key: "least", Title: "least", Digits: 2}, Column{Key: "most", Title: "most", Digits: 2}),
		targets: []target{
			{who: "lockkit", key: "rate", of: bestPeer, least: true, limit: 15},
			{who: "lockkit plain keys", key: "rate", of: bestPeer, least: true, limit: 10},
			{who: "lockkit", key: "least", least: true, limit: 0.8},
			{who: "lockkit", key: "most", limit: 1.25},
		},
		run: func(b *bench, s *Section) error {
			return b.cycles(s, load{
				goroutines: 64, key: func(int) string { return "one" },
				warm: b.window / 5, window: 2 * b.window, drain: b.drain, cancelable: true,
			}, b.rounds, (*locks).waits, func(int) func(int) gate {
				g := newGate()
				return func(int) gate { return g }
			})
		},
	}
}

const (
	processCount      = 4
	processGoroutines = 16
)

// processes returns a scenario with goroutines of several processes that want the same
// key.
func processes() scenario {
	return scenario{
		name: "processes", title: "4 processes × 16 goroutines, one key",
		about: "As before, with four processes. Busiest is what the busiest process got, to the idlest one's. " + perCycle,
		columns: cycleColumns(
			Column{Key: "busiest", Title: "busiest/idlest", Digits: 2},
			Column{Key: "least", Title: "least", Digits: 2}, Column{Key: "most", Title: "most", Digits: 2}),
		targets: []target{
			{who: "lockkit", key: "rate", of: bestPeer, least: true, limit: 8},
			{who: "lockkit", key: "busiest", limit: 1.1},
		},
		run: func(b *bench, s *Section) error {
			return b.interleave(s, b.rounds, waitingStations(func(c contender) func(int) (outcome, error) {
				return func(round int) (outcome, error) { return b.processRound(c, round) }
			}, bareCommands()))
		},
	}
}

// waitingStations returns stations for all contenders that can wait, and for the
// yardsticks in bare. Each round opens its own clients.
func waitingStations(round func(c contender) func(round int) (outcome, error), bare ...contender) []station {
	all := slices.DeleteFunc(contenders(), func(c contender) bool { return c.kind == Bare })
	var stations []station
	for _, c := range append(all, bare...) {
		stations = append(stations, station{contender: c, round: round(c), close: func() error { return nil }})
	}
	return stations
}

func (b *bench) processRound(c contender, round int) (o outcome, err error) {
	mem, err := newShared()
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, mem.remove()) }()
	var children []*child
	defer func() { err = errors.Join(err, endAll(children)) }()
	warm, window := b.window/2, 2*b.window
	for i := range processCount {
		child, err := spawn(errand{
			Mode: "load", Contender: c.name, Addr: b.server.addr, Index: i, Shared: mem.path, Count: processGoroutines,
			Key: fmt.Sprintf("processes:%s:%d", c.name, round), Warm: warm, Window: window, Drain: b.drain,
		})
		if err != nil {
			return o, err
		}
		children = append(children, child)
	}
	for _, child := range children {
		if err := child.start(); err != nil {
			return o, err
		}
	}
	time.Sleep(warm)
	before, err := b.server.work(b.ctx, c.direct)
	if err != nil {
		return o, err
	}
	time.Sleep(window)
	after, err := b.server.work(b.ctx, c.direct)
	if err != nil {
		return o, err
	}
	var turns []int64
	var each []float64
	var used usage
	total, rate := 0.0, 0.0
	for _, child := range children {
		var t counts
		if err := child.read(&t); err != nil {
			return o, err
		}
		t.Overlaps = 0 // counted once, below
		o.add(t)
		turns, each = append(turns, t.Turns...), append(each, t.total())
		total, rate = total+t.total(), rate+t.total()/t.Took
		used.CPU, used.Mallocs = used.CPU+t.Used.CPU, used.Mallocs+t.Used.Mallocs
	}
	o.overlaps = gateIn(mem, 0).overlaps.Load()
	o.figures = figures(total, 1, after.since(before), used)
	o.figures["rate"] = rate // each process measures with its own clock
	o.figures["least"], o.figures["most"] = shares(turns)
	idlest := slices.Min(each)
	if idlest == 0 {
		idlest, o.bounded, o.note = 1, []string{"busiest"}, "a process got nothing in a round"
	}
	o.figures["busiest"] = slices.Max(each) / idlest
	return o, nil
}

// loadChild is the task of each process.
func loadChild(ctx context.Context, e errand, l *locks, start func()) (any, error) {
	mem, err := openShared(e.Shared)
	if err != nil {
		return nil, err
	}
	// This connects and loads the scripts before the measurement.
	held, err := l.waits()(ctx, fmt.Sprintf("%s:warm:%d", e.Key, e.Index))
	if err != nil {
		return nil, err
	}
	if err := held.Release(ctx); err != nil {
		return nil, err
	}
	start()
	return load{
		goroutines: e.Count, key: func(int) string { return e.Key }, gate: func(int) gate { return gateIn(mem, 0) },
		get: func(int) acquirer { return l.waits() }, warm: e.Warm, window: e.Window, drain: e.Drain, cancelable: true, mark: func() error { return nil },
	}.run(ctx)
}
