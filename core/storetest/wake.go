package storetest

import (
	"errors"
	"sync"

	"github.com/lockkit/lockkit/core/store"
)

// wakeCases test that the right waiters are woken, and that no waiter is forgotten.
var wakeCases = []testCase{
	// A woken waiter that leaves passes the wake-up on to the next waiter.
	{"woken waiter leaves", []Feature{Watching}, func(e *env) {
		e.leaveWhenWoken(e.waiting(), e.waiting())
	}},
	{"woken fair waiter leaves", []Feature{Watching, Fair}, func(e *env) {
		e.leaveWhenWoken(e.fair(), e.fair())
	}},
	// If the key is free, a release of an unknown lease wakes a waiter.
	{"release of an unknown lease", []Feature{Watching, Places}, func(e *env) {
		crashed, w := e.exclusive(), e.waiting()
		// The waiter must be remembered for longer.
		crashed.TTL = min(e.units(10), store.WaiterLife/2)
		e.acquire(e.store, crashed)
		e.busy(e.other, w)
		woken := e.watch(e.other, w)
		e.outlive(crashed.TTL)
		e.notReleased(e.store, e.exclusive())
		e.wakes(woken)
	}},
	{"late waiter is woken again", []Feature{Watching, Overtaking}, func(e *env) {
		e.comeTooLate(e.waiting())
	}},
	{"late fair waiter is woken again", []Feature{Watching, Fair, Overtaking}, func(e *env) {
		e.comeTooLate(e.fair())
	}},
	{"overtaken fair waiter is woken again", []Feature{Watching, Fair, Overtaking}, func(e *env) {
		c, w, unfair := e.exclusive(), e.fair(), e.exclusive()
		e.acquire(e.store, c)
		e.busy(e.other, w)
		woken := e.watch(e.other, w)
		e.release(e.store, c)
		e.wakes(woken)
		e.acquire(e.store, unfair)
		for e.wokenBy(woken, e.units(1)) { // there may be too many hints
		}
		e.release(e.store, unfair)
		e.wakes(woken)
		e.acquire(e.other, w)
	}},
	{"wake-ups admit all writers", []Feature{Watching}, func(e *env) {
		e.lineUp(5, true, e.waiting)
	}},
	{"wake-ups admit all fair writers", []Feature{Watching, Fair}, func(e *env) {
		e.lineUp(5, true, e.fair)
	}},
	{"wake-ups admit all readers", []Feature{Watching, Shared}, func(e *env) {
		e.lineUp(5, false, func() store.Claim {
			c := e.waiting()
			c.Weight = 1
			return c
		})
	}},
	{"wake-ups admit all fair readers", []Feature{Watching, Shared, Fair}, func(e *env) {
		e.lineUp(5, false, e.fairReader)
	}},
	{"wake-ups admit all permits", []Feature{Watching, Permits}, func(e *env) {
		e.lineUp(4, false, func() store.Claim {
			c := e.waiting()
			c.Weight, c.Limit = 1, 4
			return c
		})
	}},
	{"waiter of kept key", []Feature{Watching, Keeping, Places}, func(e *env) {
		e.waitForKept(e.exclusive(), e.waiting())
	}},
	{"fair waiter of kept key", []Feature{Watching, Keeping, Fair}, func(e *env) {
		e.waitForKept(e.exclusive(), e.fair())
	}},
	{"waiter of kept permits", []Feature{Watching, Keeping, Permits}, func(e *env) {
		other, w := e.permits(2, 4), e.waiting()
		e.acquire(e.other, other)
		w.Weight, w.Limit = 2, 4
		e.waitForKept(e.permits(2, 4), w)
	}},
	{"waiter beside kept permits", []Feature{Watching, Keeping, Permits, Overtaking}, func(e *env) {
		kept, c, heavy, light := e.permits(1, 4), e.permits(3, 4), e.waiting(), e.waiting()
		e.acquire(e.store, kept)
		e.acquire(e.store, c)
		heavy.Weight, heavy.Limit = 4, 4
		light.Weight, light.Limit = 3, 4
		e.busy(e.other, heavy)
		e.busy(e.store, light)
		e.watch(e.other, heavy)
		woken := e.watch(e.store, light)
		e.release(e.store, keeping(kept, e.long))
		e.release(e.store, c)
		e.wakes(woken)
		e.acquire(e.store, light)
	}},
	{"second waiter of kept key", []Feature{Watching, Keeping, Places}, func(e *env) {
		c, first, second := e.exclusive(), e.waiting(), e.waiting()
		e.acquire(e.store, c)
		e.busy(e.store, first)
		e.busy(e.other, second)
		firstWoken, secondWoken := e.watch(e.store, first), e.watch(e.other, second)
		e.release(e.store, keeping(c, e.long))
		e.wakes(firstWoken)
		e.giveUp(e.store, first)
		e.wakes(secondWoken)
		e.retryWithin(e.busy(e.other, second), e.long)
	}},
	{"woken waiter keeps its place", []Feature{Watching, Keeping, Places, Overtaking}, func(e *env) {
		c, w, hasty := e.exclusive(), e.waiting(), e.exclusive()
		e.acquire(e.store, c)
		e.busy(e.other, w)
		woken := e.watch(e.other, w)
		e.release(e.store, keeping(c, e.units(1)))
		e.wakes(woken)
		e.becomesFree(e.store, hasty)
		for e.wokenBy(woken, e.units(1)) { // there may be too many hints
		}
		e.release(e.store, hasty)
		e.wakes(woken)
		e.acquire(e.other, w)
	}},
}

// waitForKept makes w wait for c, and releases c with Keep. The release must wake w, and
// the next request of w must return the time until the key is free.
func (e *env) waitForKept(c, w store.Claim) {
	e.Helper()
	e.acquire(e.store, c)
	e.busy(e.other, w)
	woken := e.watch(e.other, w)
	e.release(e.store, keeping(c, e.units(5)))
	e.wakes(woken)
	e.retryWithin(e.busy(e.other, w), e.units(5))
	e.outlive(e.units(5))
	e.acquire(e.other, w)
}

func (e *env) leaveWhenWoken(first, second store.Claim) {
	e.Helper()
	c := e.exclusive()
	e.acquire(e.store, c)
	e.busy(e.store, first)
	e.busy(e.other, second)
	firstWoken, secondWoken := e.watch(e.store, first), e.watch(e.other, second)
	e.release(e.store, c)
	e.wakes(firstWoken)
	e.giveUp(e.store, first)
	e.wakes(secondWoken)
	e.acquire(e.other, second)
}

func (e *env) comeTooLate(w store.Claim) {
	e.Helper()
	c, hasty := e.exclusive(), e.exclusive()
	e.acquire(e.store, c)
	e.busy(e.other, w)
	woken := e.watch(e.other, w)
	e.release(e.store, c)
	e.wakes(woken)
	e.acquire(e.store, hasty)
	e.busy(e.other, w)
	e.release(e.store, hasty)
	e.wakes(woken)
	e.acquire(e.other, w)
}

// lineUp makes n claims wait behind a writer. Each claim asks again only when it is
// woken, and must be admitted in the end. If turns is true, the claims hold the key one
// after the other. Otherwise all claims hold the key at the same time.
func (e *env) lineUp(n int, turns bool, claim func() store.Claim) {
	e.Helper()
	c := e.exclusive()
	e.acquire(e.store, c)
	var all, in sync.WaitGroup
	in.Add(n)
	for i := range n {
		s := []store.Store{e.store, e.other}[i%2]
		w := claim()
		e.busy(s, w)
		woken := e.watch(s, w)
		all.Go(func() {
			err := e.getIn(s, w, woken)
			in.Done()
			if err != nil {
				e.Errorf("waiter %d: %v", i, err)
				return
			}
			if !turns {
				in.Wait()
			}
			if err := s.Release(e.Context(), w); err != nil {
				e.Errorf("waiter %d: release: %v", i, err)
			}
		})
	}
	e.release(e.store, c)
	all.Wait()
	e.isFree()
}

var errNotWoken = errors.New("was not woken")

func (e *env) getIn(s store.Store, w store.Claim, woken <-chan struct{}) error {
	for {
		if !e.wokenBy(woken, patience) {
			return errNotWoken
		}
		if _, err := s.Acquire(e.Context(), w); !errors.Is(err, store.ErrBusy) {
			return err
		}
	}
}
