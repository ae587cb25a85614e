package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// handoff returns a scenario with two processes that pass one lock to and fro.
func handoff() scenario {
	return scenario{
		name: "hand-off", title: "hand-off to a waiting process",
		about: "Two processes pass one lock to and fro. A hand-off is from the call of a release to the return of the other's acquire, which has waited for 3 to 13 ms by then. " +
			"Milliseconds; commands and CPU time are per hand-off. Bare message is the least lock that a script passes on by message: no token, no order, no look whether the other one lives.",
		columns: []Column{
			{Key: "p50", Title: "p50 ms", Digits: 2, Better: Less, Ratio: true},
			{Key: "p99", Title: "p99 ms", Digits: 2, Better: Less, Ratio: true},
			{Key: "count", Title: "hand-offs"},
			{Key: "commands", Title: "commands", Digits: 1},
			{Key: "calls", Title: "calls", Digits: 1},
			{Key: "clientCPU", Title: "client µs"},
		},
		targets: []target{
			{who: "lockkit", key: "p50", of: bestPeer, limit: 0.5, why: passing},
			{who: "lockkit", key: "p99", of: bestPeer, limit: 0.5, why: passing},
		},
		run: func(b *bench, s *Section) error {
			return b.interleave(s, b.rounds, waitingStations(func(c contender) func(int) (outcome, error) {
				return func(round int) (outcome, error) { return b.handoffRound(c, round) }
			}, bareCommands(), bareMessage()))
		},
	}
}

// These are the words of a hand-off's shared memory, after the words of the gate.
const (
	wordGrants   = 2 + iota // number of grants
	wordAsked               // number of the latest requested grant
	wordReleased            // time of the last call of Release, by clock
	wordOver                // set by the last holder
)

type handoffs struct {
	Took []time.Duration
	CPU  float64
}

func (b *bench) handoffRound(c contender, round int) (o outcome, err error) {
	mem, err := newShared()
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, mem.remove()) }()
	var children []*child
	defer func() { err = errors.Join(err, endAll(children)) }()
	for i := range 2 {
		child, err := spawn(errand{
			Mode: "handoff", Contender: c.name, Addr: b.server.addr, Index: i, Shared: mem.path,
			Key: fmt.Sprintf("handoff:%s:%d", c.name, round), Count: b.handoffs, Window: b.handoffTime,
		})
		if err != nil {
			return o, err
		}
		children = append(children, child)
	}
	before, err := b.server.work(b.ctx, c.direct)
	if err != nil {
		return o, err
	}
	for _, child := range children {
		if err := child.start(); err != nil {
			return o, err
		}
	}
	var all []float64
	cpu := 0.0
	for _, child := range children {
		var h handoffs
		if err := child.read(&h); err != nil {
			return o, err
		}
		for _, d := range h.Took {
			all = append(all, d.Seconds()*1e3)
		}
		cpu += h.CPU
	}
	after, err := b.server.work(b.ctx, c.direct)
	if err != nil {
		return o, err
	}
	o.overlaps = gateIn(mem, 0).overlaps.Load()
	if len(all) == 0 {
		return o, errors.New("no hand-off took place")
	}
	slices.Sort(all)
	n, w := float64(len(all)), after.since(before)
	o.figures = map[string]float64{
		"p50": percentile(all, 50), "p99": percentile(all, 99), "count": n,
		"commands": w.Commands / n, "calls": w.Calls / n, "clientCPU": cpu / n * 1e6,
	}
	return o, nil
}

// handoffChild runs in each of the two processes. Child i acquires the grants i, i+2,
// and so on.
func handoffChild(ctx context.Context, e errand, l *locks, start func()) (any, error) {
	mem, err := openShared(e.Shared)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.Window+30*time.Second)
	defer cancel()
	held, err := l.waits()(ctx, fmt.Sprintf("%s:warm:%d", e.Key, e.Index))
	if err != nil {
		return nil, err
	}
	if err := held.Release(ctx); err != nil {
		return nil, err
	}
	start()
	h := handoffs{CPU: -cpuSoFar()}
	door, over := gateIn(mem, 0), mem.word(wordOver)
	until := time.Now().Add(e.Window)
	for n := int64(e.Index); ; n += 2 {
		// This process asks when the other process holds the lock, so it has to wait.
		if err := reach(ctx, mem.word(wordGrants), n, over); err != nil || over.Load() != 0 {
			h.CPU += cpuSoFar()
			return h, err
		}
		mem.word(wordAsked).Store(n)
		held, err := l.waits()(ctx, e.Key)
		granted := clock()
		if err != nil {
			return nil, err
		}
		door.enter()
		if n > 0 {
			h.Took = append(h.Took, granted-time.Duration(mem.word(wordReleased).Load()))
		}
		mem.word(wordGrants).Store(n + 1)
		// The first grant is not a hand-off, however late it is.
		if n >= int64(e.Count) || n > 0 && time.Now().After(until) {
			over.Store(1)
		} else if err := reach(ctx, mem.word(wordAsked), n+1, over); err != nil {
			return nil, err
		} else {
			// The pause gives the other process time to start waiting. The pause is
			// random, so that no polling contender is in step with the releases.
			time.Sleep(3*time.Millisecond + rand.N(10*time.Millisecond))
		}
		door.leave()
		mem.word(wordReleased).Store(int64(clock()))
		if err := held.Release(ctx); err != nil {
			return nil, err
		}
	}
}

// reach waits until word is at least n, or over is set.
func reach(ctx context.Context, word *atomic.Int64, n int64, over *atomic.Int64) error {
	for word.Load() < n && over.Load() == 0 {
		if ctx.Err() != nil {
			return errors.New("the other process did not go on")
		}
		time.Sleep(100 * time.Microsecond)
	}
	return nil
}
