package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// crowd returns a scenario with very many goroutines of one process that wait for one
// key. Another client, which stands for a process, holds the key and then releases it.
func crowd(sc scale) scenario {
	return scenario{
		name: "crowd", title: fmt.Sprintf("%d waiters in one process, held key", sc.crowd),
		about: fmt.Sprintf("Commands and calls are per second while the key is held elsewhere; served is how long after its release all had their turn, with an empty critical section, %v at most.",
			sc.crowdBound),
		columns: []Column{
			{Key: "commands", Title: "commands/s", Digits: 1},
			{Key: "calls", Title: "calls/s", Digits: 1},
			{Key: "clientCPU", Title: "client CPU %", Digits: 1},
			{Key: "served", Title: "served s", Digits: 2, Better: Less, Ratio: true},
			{Key: "count", Title: "were served"},
			{Key: "perGrant", Title: "commands/grant", Digits: 2},
		},
		targets: []target{
			{who: "lockkit", key: "commands", limit: 1},
			{who: "lockkit", key: "served", of: bestPeer, limit: 0.5},
		},
		run: func(b *bench, s *Section) error {
			return b.interleave(s, b.crowdRounds, waitingStations(func(c contender) func(int) (outcome, error) {
				return func(round int) (outcome, error) {
					return b.crowdRound(c, fmt.Sprintf("crowd:%s:%d", c.name, round))
				}
			}))
		},
	}
}

// waiters is a group of goroutines that each acquire one key once.
type waiters struct {
	served atomic.Int64
	errors atomic.Int64
	first  atomic.Pointer[string]
	gate   gate
	all    chan struct{} // closed when all goroutines have finished
}

func wait(ctx context.Context, n int, key string, l *locks) *waiters {
	w := &waiters{gate: newGate(), all: make(chan struct{})}
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			held, err := l.acquire(ctx, key)
			if err == nil {
				w.gate.enter()
				w.gate.leave()
				w.served.Add(1)
				err = held.Release(ctx)
			}
			if err != nil && ctx.Err() == nil {
				text := err.Error()
				w.first.CompareAndSwap(nil, &text)
				w.errors.Add(1)
			}
		})
	}
	go func() {
		wg.Wait()
		close(w.all)
	}()
	return w
}

func (b *bench) crowdRound(c contender, key string) (outcome, error) {
	var o outcome
	holder, err := c.open(opening{addr: b.server.addr, conns: 2})
	if err != nil {
		return o, err
	}
	defer holder.close()
	l, err := c.open(opening{addr: b.server.addr, conns: 64})
	if err != nil {
		return o, err
	}
	defer l.close()
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	held, err := holder.acquire(ctx, key)
	if err != nil {
		return o, err
	}
	w := wait(ctx, b.crowd, key, l)
	time.Sleep(min(b.crowdWatch, 3*time.Second)) // time for all to start waiting
	cpu := cpuSoFar()
	watched, start, err := b.timedWork(c)
	if err != nil {
		return o, err
	}
	time.Sleep(b.crowdWatch)
	work, end, err := b.timedWork(c)
	if err != nil {
		return o, err
	}
	seconds := end.Sub(start).Seconds()
	o.figures = map[string]float64{
		"commands": work.since(watched).Commands / seconds, "calls": work.since(watched).Calls / seconds,
		"clientCPU": (cpuSoFar() - cpu) / seconds * 100,
	}
	if n := w.served.Load(); n > 0 {
		o.overlaps = n // served while the other client held the key
	}
	start = time.Now()
	if err := held.Release(ctx); err != nil {
		return o, fmt.Errorf("the holder's release: %w", err)
	}
	done := within(b.crowdBound, w.all)
	o.figures["served"] = time.Since(start).Seconds()
	after, _, err := b.timedWork(c)
	if err != nil {
		return o, err
	}
	served := w.served.Load()
	o.figures["count"] = float64(served)
	if served > 0 {
		o.figures["perGrant"] = after.since(work).Commands / float64(served)
	}
	if !done {
		o.bounded, o.last = []string{"served"}, true
		o.note = fmt.Sprintf("%d of %d were served within %v", served, b.crowd, b.crowdBound)
		cancel()
		if !within(leaving, w.all) {
			o.stuck = 1
		}
	}
	o.overlaps += w.gate.overlaps.Load()
	o.errors = w.errors.Load()
	if text := w.first.Load(); text != nil {
		o.first = *text
	}
	return o, nil
}

func (b *bench) timedWork(c contender) (work, time.Time, error) {
	w, err := b.server.work(b.ctx, c.direct)
	return w, time.Now(), err
}
