package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// load is a group of goroutines that repeatedly acquire and release locks.
type load struct {
	goroutines int
	key        func(g int) string // key of goroutine g
	gate       func(g int) gate   // gate of that key
	get        func(g int) acquirer
	hold       time.Duration // duration of the critical section
	warm       time.Duration // time at the start that is not counted
	window     time.Duration // time that is counted
	cancelable bool          // calls have a context that can be canceled
	free       bool          // no other load uses the keys
	drain      time.Duration // time for late callers after the window, before their cancellation
	// mark is called at both ends of the window, while the load runs.
	mark func() error
}

// counts has the results of a load in its window.
type counts struct {
	Took     float64 // seconds
	Turns    []int64 // cycles of each goroutine
	Used     usage
	Overlaps int64
	Errors   int64
	Error    string // the first error
	Unserved int64  // goroutines that had not finished within drain after the window
	Stuck    int64  // goroutines that did not return after their context was canceled
}

// turn counts the cycles of one goroutine, in a separate cache line.
type turn struct {
	n atomic.Int64
	_ [56]byte
}

const (
	leaving = 10 * time.Second // for goroutines whose context is done
	tooMany = 100              // maximum errors of one goroutine
)

type loadRun struct {
	load
	turns  []turn
	stop   atomic.Bool
	errors atomic.Int64
	first  atomic.Pointer[string]
	out    atomic.Int64 // goroutines that have finished
}

// run measures l. It returns an error only if mark does.
func (l load) run(ctx context.Context) (counts, error) {
	r := &loadRun{load: l, turns: make([]turn, l.goroutines)}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	calls := context.Background()
	if l.cancelable {
		calls = ctx
	}
	var wg sync.WaitGroup
	for g := range l.goroutines {
		wg.Go(func() {
			defer r.out.Add(1)
			r.work(calls, g)
		})
	}
	time.Sleep(l.warm)
	t, err := r.count()
	r.stop.Store(true)
	ended := make(chan struct{})
	go func() {
		wg.Wait()
		close(ended)
	}()
	if l.drain > 0 && !within(l.drain, ended) {
		t.Unserved = int64(l.goroutines) - r.out.Load()
	}
	if l.drain == 0 || t.Unserved > 0 {
		cancel()
	}
	within(leaving, ended)
	t.Stuck = int64(l.goroutines) - r.out.Load()
	t.Errors = r.errors.Load()
	if text := r.first.Load(); text != nil {
		t.Error = *text
	}
	seen := make(map[*atomic.Int64]bool)
	for g := range l.goroutines {
		if o := l.gate(g).overlaps; !seen[o] {
			seen[o] = true
			t.Overlaps += o.Load()
		}
	}
	return t, err
}

func (r *loadRun) count() (counts, error) {
	if err := r.mark(); err != nil {
		return counts{}, err
	}
	t := counts{Turns: make([]int64, len(r.turns))}
	used, start := usedSoFar(), time.Now()
	for g := range r.turns {
		t.Turns[g] = -r.turns[g].n.Load()
	}
	time.Sleep(r.window)
	for g := range r.turns {
		t.Turns[g] += r.turns[g].n.Load()
	}
	t.Took, t.Used = time.Since(start).Seconds(), usedSoFar().since(used)
	return t, r.mark()
}

func (r *loadRun) work(ctx context.Context, g int) {
	key, gate, get, failed := r.key(g), r.gate(g), r.get(g), 0
	for !r.stop.Load() {
		if err := r.cycle(ctx, get, key, gate); err != nil {
			if r.stop.Load() && ctx.Err() != nil {
				return
			}
			text := err.Error()
			r.first.CompareAndSwap(nil, &text)
			r.errors.Add(1)
			if failed++; failed >= tooMany {
				return
			}
			continue
		}
		r.turns[g].n.Add(1)
	}
}

func (r *loadRun) cycle(ctx context.Context, get acquirer, key string, gate gate) error {
	held, err := get(ctx, key)
	if err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	gate.enter()
	if r.hold > 0 {
		time.Sleep(r.hold)
	}
	gate.leave()
	if err := held.Release(ctx); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

func (t counts) total() float64 {
	n := int64(0)
	for _, turns := range t.Turns {
		n += turns
	}
	return float64(n)
}

// shares returns the smallest and the largest number of turns, as multiples of the fair
// share.
func shares(turns []int64) (least, most float64) {
	low, high, sum := turns[0], turns[0], int64(0)
	for _, n := range turns {
		low, high, sum = min(low, n), max(high, n), sum+n
	}
	if sum == 0 {
		return 0, 0
	}
	fair := float64(sum) / float64(len(turns))
	return float64(low) / fair, float64(high) / fair
}

// within waits for at most the time d until the channel done is closed, and reports
// whether it was closed.
func within(d time.Duration, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}
