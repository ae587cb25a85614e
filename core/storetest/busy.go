package storetest

import (
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

var busyCases = []testCase{
	{"RetryAfter is within the TTL", nil, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.retryWithin(e.busy(e.other, e.exclusive()), c.TTL)
		e.retryWithin(e.busy(e.store, e.waiting()), c.TTL)
	}},
	{"RetryAfter shrinks with the hold", nil, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(20)
		e.acquire(e.store, c)
		e.sleep(e.units(10))
		e.retryWithin(e.busy(e.other, e.exclusive()), e.units(10))
	}},
	{"RetryAfter grows with an extension", nil, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(20)
		e.acquire(e.store, c)
		c.TTL = e.long
		e.extend(e.store, c)
		e.retryWithin(e.busy(e.other, e.exclusive()), c.TTL)
	}},
	// The expiry of the first hold may already leave room.
	{"RetryAfter until the first expiry", []Feature{Shared}, func(e *env) {
		short, long := e.reader(), e.reader()
		short.TTL = e.units(10)
		e.acquire(e.store, long)
		e.acquire(e.store, short)
		e.retryWithin(e.busy(e.other, e.exclusive()), short.TTL)
	}},
	{"RetryAfter behind a fair waiter", []Feature{Fair}, func(e *env) {
		c, first := e.exclusive(), e.fair()
		e.acquire(e.store, c)
		e.busy(e.other, first)
		e.release(e.store, c)
		e.retryWithin(e.busy(e.store, e.fair()), min(first.TTL, store.WaiterLife))
	}},
	{"Waiting counts waiters", []Feature{Watching, Places}, func(e *env) {
		e.countsWaiters(e.waiting)
	}},
	{"Waiting counts fair waiters", []Feature{Fair}, func(e *env) {
		e.countsWaiters(e.fair)
	}},
	{"busy does not show the key", nil, func(e *env) {
		e.acquire(e.store, e.exclusive())
		_, err := e.other.Acquire(e.Context(), e.exclusive())
		if err == nil || strings.Contains(err.Error(), e.key) {
			e.Errorf("got error %q, want one that does not contain the key", err)
		}
	}},
}

// countsWaiters makes claims of waiter wait for a held key, and checks the number of
// waiters in each answer.
func (e *env) countsWaiters(waiter func() store.Claim) {
	e.Helper()
	e.acquire(e.store, e.exclusive())
	for n := 1; n <= 8; n++ {
		c := waiter()
		for range 2 { // a repeated request does not add a waiter
			if busy := e.busy(e.store, c); busy.Waiting < (n+1)/2 || busy.Waiting > 2*n {
				e.Errorf("got Waiting %d for %d waiters, want at least half and at most twice that", busy.Waiting, n)
			}
		}
	}
}

func (e *env) retryWithin(busy *store.BusyError, limit time.Duration) {
	e.Helper()
	// A store may round the remaining time up to its smallest unit.
	if busy.RetryAfter <= 0 || busy.RetryAfter > limit+tick {
		e.Errorf("RetryAfter is %v, want more than 0 and at most %v", busy.RetryAfter, limit)
	}
}
