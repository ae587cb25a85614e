package storetest

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

var concurrencyCases = []testCase{
	{"count under a mutex", nil, func(e *env) {
		e.crowd(1, 2*time.Millisecond, func(int) store.Claim { return e.exclusive() })
	}},
	{"count under a fair mutex", []Feature{Fair}, func(e *env) {
		e.crowd(1, 2*time.Millisecond, func(int) store.Claim { return e.fair() })
	}},
	{"count under one permit", []Feature{Permits}, func(e *env) {
		e.crowd(1, 2*time.Millisecond, func(int) store.Claim { return e.permits(1, 1) })
	}},
	{"permits never exceed their limit", []Feature{Permits}, func(e *env) {
		e.crowd(3, 2*time.Millisecond, func(int) store.Claim { return e.permits(1, 3) })
	}},
	{"permits of several weights", []Feature{Permits}, func(e *env) {
		e.crowd(5, 2*time.Millisecond, func(i int) store.Claim { return e.permits(int64(1+i%3), 5) })
	}},
	{"readers never beside a writer", []Feature{Shared}, func(e *env) {
		e.crowd(store.All, 20*time.Millisecond, func(i int) store.Claim {
			if i%4 == 0 {
				return e.exclusive()
			}
			return e.reader()
		})
	}},
	{"one of many concurrent claims", nil, func(e *env) {
		for range 5 {
			c := e.race(8, func() store.Claim { return e.exclusive() })
			e.isHeld()
			e.release(e.store, c)
		}
	}},
	{"same claim sent concurrently", nil, func(e *env) {
		c := e.exclusive()
		grants := make([]store.Grant, 8)
		var all sync.WaitGroup
		for i := range grants {
			all.Go(func() {
				var err error
				if grants[i], err = e.side(i).Acquire(e.Context(), c); err != nil {
					e.Errorf("acquire: %v", err)
				}
			})
		}
		all.Wait()
		for _, g := range grants {
			if e.isSame(g.Token, grants[0].Token); g.Owner != grants[0].Owner {
				e.Errorf("got grants %+v and %+v for one claim", grants[0], g)
			}
		}
		e.release(e.store, c)
		e.isFree()
	}},
	{"tokens in order of grants", []Feature{Fencing}, func(e *env) {
		var last atomic.Uint64
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				for range 5 {
					c := e.exclusive()
					g, err := e.insist(e.side(i), c)
					if err != nil {
						e.Errorf("acquire: %v", err)
						return
					}
					if before := last.Swap(g.Token); before >= g.Token {
						e.Errorf("got token %d after %d", g.Token, before)
					}
					if err := answered(func() error { return e.side(i).Release(e.Context(), c) }); err != nil {
						e.Errorf("release: %v", err)
					}
				}
			})
		}
		all.Wait()
	}},
}

func (e *env) side(i int) store.Store { return []store.Store{e.store, e.other}[i%2] }

// crowd makes several goroutines hold the key several times each, with random pauses of
// less than pause. The sum of the held weights must never exceed limit. A counter that
// only one holder at a time may change must not miss a change.
func (e *env) crowd(limit int64, pause time.Duration, claim func(i int) store.Claim) {
	e.Helper()
	const n, rounds, stay = 8, 12, 3 * time.Millisecond
	var inside, exclusive, counter atomic.Int64
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for range rounds {
				time.Sleep(rand.N(pause))
				c := claim(i)
				if _, err := e.insist(e.side(i), c); err != nil {
					e.Errorf("goroutine %d: acquire: %v", i, err)
					return
				}
				weight := c.Weight
				if limit == 1 {
					weight = 1 // every claim of a mutex counts as 1
				}
				if sum := inside.Add(weight); sum > limit {
					e.Errorf("goroutine %d: weight %d is inside, at most %d is allowed", i, sum, limit)
				}
				if weight == limit {
					// Only the claim makes this read and this write atomic.
					before := counter.Load()
					time.Sleep(stay)
					counter.Store(before + 1)
					exclusive.Add(1)
				} else {
					time.Sleep(stay)
				}
				inside.Add(-weight)
				if err := answered(func() error { return e.side(i).Release(e.Context(), c) }); err != nil {
					e.Errorf("goroutine %d: release: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	if counter.Load() != exclusive.Load() {
		e.Errorf("counted %d, want %d: updates were lost", counter.Load(), exclusive.Load())
	}
	e.becomesFree(e.other, e.exclusive())
}

// insist acquires c, and repeats this while the key is busy, for at most twice patience.
func (e *env) insist(s store.Store, c store.Claim) (store.Grant, error) {
	for stop := time.Now().Add(2 * patience); ; {
		var g store.Grant
		err := answered(func() (err error) {
			g, err = s.Acquire(e.Context(), c)
			return err
		})
		if !errors.Is(err, store.ErrBusy) || time.Now().After(stop) {
			return g, err
		}
		time.Sleep(5*time.Millisecond + rand.N(10*time.Millisecond))
	}
}

// answered repeats call while it takes at least a second and returns an error other
// than store.ErrBusy. It stops after twice patience. On a busy machine, the time limit
// of a store's call can cause such an error. If a repeated release gets store.ErrLost,
// an earlier release has succeeded.
func answered(call func() error) error {
	for again, stop := false, time.Now().Add(2*patience); ; again = true {
		start := time.Now()
		err := call()
		if again && errors.Is(err, store.ErrLost) {
			return nil
		}
		if err == nil || errors.Is(err, store.ErrBusy) || time.Since(start) < time.Second || time.Now().After(stop) {
			return err
		}
	}
}

// race sends n claims once each, all at the same time, and returns the granted claim.
// It fails the case unless exactly one claim is granted.
func (e *env) race(n int, claim func() store.Claim) store.Claim {
	e.Helper()
	var all sync.WaitGroup
	granted := make(chan store.Claim, n)
	for i := range n {
		c := claim()
		all.Go(func() {
			err := answered(func() error {
				_, err := e.side(i).Acquire(e.Context(), c)
				return err
			})
			if err == nil {
				granted <- c
			} else if !errors.Is(err, store.ErrBusy) {
				e.Errorf("acquire: %v", err)
			}
		})
	}
	all.Wait()
	if len(granted) != 1 {
		e.Fatalf("%d of %d claims were granted at once", len(granted), n)
	}
	return <-granted
}
