package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// heldLeases returns a scenario in which one process only holds very many leases.
func heldLeases(sc scale) scenario {
	return scenario{
		name: "held", title: fmt.Sprintf("%d held leases, TTL %v", sc.held, ttl),
		about: fmt.Sprintf("One process holds them for %v. Lost are those of which it was notified, or which the server no longer has; CPU is the share of one core; bytes are heap and stacks; goroutines are the most that were seen, ten times a second.", sc.heldWindow),
		columns: []Column{
			{Key: "lost", Title: "lost"},
			{Key: "cpu", Title: "client CPU %", Digits: 2, Better: Less, Ratio: true},
			{Key: "serverCPU", Title: "server CPU %", Digits: 2},
			{Key: "commands", Title: "commands/s"},
			{Key: "bytes", Title: "bytes/lease", Better: Less, Ratio: true},
			{Key: "goroutines", Title: "goroutines"},
			{Key: "acquired", Title: "acquired s", Digits: 2},
		},
		targets: []target{
			{who: "lockkit", key: "lost", limit: 0},
			{who: "lockkit", key: "cpu", limit: 5, why: extensions},
			{who: "lockkit", key: "bytes", limit: 1024},
			{who: "lockkit", key: "goroutines", limit: 100},
		},
		run: func(b *bench, s *Section) error {
			var stations []station
			for _, st := range waitingStations(func(c contender) func(int) (outcome, error) {
				return func(int) (outcome, error) { return b.heldRound(c) }
			}) {
				if b.heldAll || !slices.Contains([]string{"lockkit plain keys", "redsync"}, st.name) {
					stations = append(stations, st)
				}
			}
			return b.interleave(s, 1, stations)
		},
	}
}

type heldTally struct {
	Lost       int
	CPU        float64 // seconds
	Seconds    float64
	Bytes      float64
	Goroutines int // maximum, minus the goroutines before the first lease
	Acquiring  float64
}

func (b *bench) heldRound(c contender) (o outcome, err error) {
	if err := b.server.wipe(b.ctx); err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, b.server.wipe(b.ctx)) }()
	child, err := spawn(errand{Mode: "held", Contender: c.name, Addr: b.server.addr, Count: b.held, Window: b.heldWindow})
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, child.end()) }()
	before, err := b.server.work(b.ctx, c.direct)
	if err != nil {
		return o, err
	}
	if err := child.start(); err != nil {
		return o, err
	}
	var h heldTally
	if err := child.read(&h); err != nil {
		return o, err
	}
	after, err := b.server.work(b.ctx, c.direct)
	if err != nil {
		return o, err
	}
	there, err := b.server.control.DBSize(b.ctx).Result()
	if err != nil {
		return o, err
	}
	w := after.since(before)
	o.figures = map[string]float64{
		"lost": float64(max(h.Lost, b.held-int(there))), "cpu": h.CPU / h.Seconds * 100, "serverCPU": w.CPU / h.Seconds * 100,
		"commands": w.Commands / h.Seconds, "bytes": h.Bytes, "goroutines": float64(h.Goroutines), "acquired": h.Acquiring,
	}
	return o, nil
}

const heldHands = 64

// heldChild acquires the leases before it calls start, so that the CPU time and the
// commands are those of holding.
func heldChild(ctx context.Context, e errand, l *locks, start func()) (any, error) {
	// The measurement does not include connecting.
	if t, err := (load{
		goroutines: heldHands, key: func(g int) string { return "warm:" + strconv.Itoa(g) },
		gate: func(int) gate { return newGate() }, get: func(int) acquirer { return l.try },
		warm: 100 * time.Millisecond, drain: time.Minute, mark: func() error { return nil },
	}).run(ctx); err != nil || t.Errors > 0 {
		return nil, errors.Join(err, errors.New(t.Error))
	}
	before, goroutines := memory(), runtime.NumGoroutine()
	h := heldTally{}
	began := time.Now()
	lost := make([]func() bool, e.Count)
	var next atomic.Int64
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for range heldHands {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(lost) {
					return
				}
				l, err := l.hold(ctx, "held:"+strconv.Itoa(i))
				if err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				lost[i] = l
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	h.Acquiring = time.Since(began).Seconds()
	h.Bytes = (memory() - before) / float64(e.Count)
	start()
	cpu, began := cpuSoFar(), time.Now()
	for time.Since(began) < e.Window {
		time.Sleep(time.Second / 10)
		h.Goroutines = max(h.Goroutines, runtime.NumGoroutine()-goroutines)
	}
	h.CPU, h.Seconds = cpuSoFar()-cpu, time.Since(began).Seconds()
	for _, l := range lost {
		if l() {
			h.Lost++
		}
	}
	return h, nil
}

// memory returns the size of the process's objects and stacks, in bytes.
func memory() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
