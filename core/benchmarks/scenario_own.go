package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
)

// cycleColumns returns the columns of scenarios that count cycles.
func cycleColumns(more ...Column) []Column {
	return append([]Column{
		{Key: "rate", Title: "cycles/s", Better: More, Ratio: true},
		{Key: "commands", Title: "commands", Digits: 2},
		{Key: "calls", Title: "calls", Digits: 2},
		{Key: "in", Title: "B in", Digits: 0},
		{Key: "out", Title: "B out", Digits: 0},
		{Key: "serverCPU", Title: "server µs", Digits: 1},
		{Key: "clientCPU", Title: "client µs", Digits: 1},
		{Key: "allocs", Title: "allocs", Digits: 1},
	}, more...)
}

const perCycle = "All but the first columns are per cycle: commands sent, calls with those of scripts, bytes, CPU time, allocations."

// ownKeys returns a scenario of free locks, with one key per goroutine. In practice a
// request's context can be canceled, and a call with such a context costs more. So the
// main scenarios measure these calls. The scenarios with contexts that cannot be
// canceled are for comparison.
func ownKeys(name string, goroutines int, cancelable bool) scenario {
	sc := scenario{
		name: name, columns: cycleColumns(), title: fmt.Sprintf("%d goroutines, own keys", goroutines),
		about: "Acquire and release of free keys. " + perCycle,
	}
	if goroutines == 1 {
		sc.title = "one goroutine, own key"
	}
	rate := func(of string, usual, plain float64, w why) []target {
		return []target{
			{who: "lockkit", key: "rate", of: of, least: true, limit: usual, why: w},
			{who: "lockkit plain keys", key: "rate", of: of, least: true, limit: plain, why: w},
		}
	}
	switch {
	case !cancelable && goroutines == 1:
		sc.targets = append(rate("bare commands", 0.95, 0.95, twoTrips),
			target{who: "lockkit", key: "allocs", limit: 24}, target{who: "lockkit plain keys", key: "allocs", limit: 24})
	case !cancelable:
	case goroutines == 1:
		sc.targets = rate(bestPeer, 0.95, 0.95, twoTrips)
	case goroutines <= 64:
		sc.targets = rate(bestPeer, 1.5, 1.7, busyMachine)
	default:
		sc.targets = rate(bestPeer, 1.7, 1.9, busyMachine)
	}
	if !cancelable {
		sc.title += ", under contexts that cannot end"
	}
	var more []contender
	if cancelable {
		more = append(more, bareDetached())
	}
	sc.run = func(b *bench, s *Section) error {
		return b.cycles(s, load{
			goroutines: goroutines,
			key:        func(g int) string { return "own:" + strconv.Itoa(g) },
			warm:       b.window / 20, window: b.window / 10, drain: b.drain, cancelable: cancelable, free: true,
		}, 10*b.rounds, func(l *locks) acquirer { return l.try }, func(int) func(int) gate {
			gates := make([]gate, goroutines)
			for g := range gates {
				gates[g] = newGate()
			}
			return func(g int) gate { return gates[g] }
		}, more...)
	}
	return sc
}

type acquirer = func(ctx context.Context, key string) (lease, error)

// conns returns the size of a pool for this number of goroutines. Larger pools made all
// contenders with a pool slower.
func conns(goroutines int) int { return min(goroutines, 64) }

// cycles runs rounds of a load for every contender that supports it, including the
// contenders in more.
func (b *bench) cycles(s *Section, l load, rounds int, pick func(*locks) acquirer, gates func(round int) func(g int) gate, more ...contender) error {
	var stations []station
	for _, c := range append(contenders(), more...) {
		open, err := c.open(opening{addr: b.server.addr, conns: conns(l.goroutines)})
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		get := pick(open)
		if get == nil {
			if err := open.close(); err != nil {
				return err
			}
			continue
		}
		stations = append(stations, station{contender: c, close: open.close, round: func(round int) (outcome, error) {
			l := l
			l.get, l.gate = func(int) acquirer { return get }, gates(round)
			key := l.key
			l.key = func(g int) string { return c.name + ":" + strconv.Itoa(round) + ":" + key(g) }
			return b.cycle(c, l)
		}})
	}
	return b.interleave(s, rounds, stations)
}

func (b *bench) cycle(c contender, l load) (outcome, error) {
	var marks []work
	direct := c.direct
	if l.free {
		direct = slices.Concat(direct, c.free)
	}
	l.mark = func() error {
		w, err := b.server.work(b.ctx, direct)
		marks = append(marks, w)
		return err
	}
	t, err := l.run(b.ctx)
	if err != nil {
		return outcome{}, err
	}
	o := outcome{figures: figures(t.total(), t.Took, marks[1].since(marks[0]), t.Used)}
	o.add(t)
	if len(t.Turns) > 1 {
		o.figures["least"], o.figures["most"] = shares(t.Turns)
	}
	return o, nil
}

func (o *outcome) add(t counts) {
	o.overlaps += t.Overlaps
	o.errors += t.Errors
	o.unserved += t.Unserved
	o.stuck += t.Stuck
	if o.first == "" {
		o.first = t.Error
	}
}

// figures returns the figures for cycleColumns.
func figures(cycles, seconds float64, w work, u usage) map[string]float64 {
	f := map[string]float64{"rate": cycles / seconds}
	if cycles == 0 {
		return f
	}
	f["commands"], f["calls"] = w.Commands/cycles, w.Calls/cycles
	f["in"], f["out"] = w.In/cycles, w.Out/cycles
	f["serverCPU"], f["clientCPU"] = w.CPU/cycles*1e6, u.CPU/cycles*1e6
	f["allocs"] = u.Mallocs / cycles
	return f
}
