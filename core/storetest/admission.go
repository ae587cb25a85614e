package storetest

import (
	"errors"

	"github.com/lockkit/lockkit/core/store"
)

var admissionCases = []testCase{
	{"exclusive hold keeps everybody out", nil, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.busy(e.store, e.exclusive())
		e.busy(e.other, e.exclusive())
		e.extend(e.store, c)
	}},
	{"owners differ in one invalid byte", nil, func(e *env) {
		c, other := e.exclusive(), e.exclusive()
		c.Owner, other.Owner = c.Owner+"\xff", c.Owner+"\xfe" // not UTF-8
		g, err := e.store.Acquire(e.Context(), c)
		if errors.Is(err, store.ErrInvalid) {
			return // a store may accept only text
		}
		if err != nil || g.Owner != c.Owner {
			e.Fatalf("got owner %q and %v, want a grant to %q", g.Owner, err, c.Owner)
		}
		e.busy(e.other, other)
		e.busy(e.store, other)
		e.extend(e.store, c)
		e.release(e.store, c)
		other.Lease = newLease()
		e.acquire(e.other, other)
		e.busy(e.store, e.exclusive())
	}},
	{"leases differ in one invalid byte", nil, func(e *env) {
		c, other := e.exclusive(), e.exclusive()
		c.Lease, other.Lease = c.Lease+"\xff", c.Lease+"\xfe"
		if _, err := e.store.Acquire(e.Context(), c); errors.Is(err, store.ErrInvalid) {
			return
		}
		e.notExtended(e.other, other)
		e.notReleased(e.other, other)
		e.isHeld()
		e.extend(e.store, c)
		e.release(e.store, c)
		e.isFree()
	}},
	{"readers share a key", []Feature{Shared}, func(e *env) {
		for range 5 {
			e.acquire(e.store, e.reader())
			e.acquire(e.other, e.reader())
		}
	}},
	{"writer keeps readers out", []Feature{Shared}, func(e *env) {
		w := e.exclusive()
		e.acquire(e.store, w)
		e.busy(e.other, e.reader())
		e.release(e.store, w)
		e.acquire(e.other, e.reader())
	}},
	{"readers keep a writer out", []Feature{Shared}, func(e *env) {
		a, b, w := e.reader(), e.reader(), e.exclusive()
		e.acquire(e.store, a)
		e.acquire(e.other, b)
		e.busy(e.store, w)
		e.release(e.store, a)
		e.busy(e.store, w)
		e.release(e.other, b)
		e.acquire(e.store, w)
	}},
	{"permits up to the limit", []Feature{Permits}, func(e *env) {
		a, b := e.permits(2, 5), e.permits(2, 5)
		e.acquire(e.store, a)
		e.acquire(e.other, b)
		e.busy(e.store, e.permits(2, 5))
		e.acquire(e.store, e.permits(1, 5))
		e.busy(e.other, e.permits(1, 5))
		e.release(e.other, b)
		e.acquire(e.store, e.permits(2, 5))
		e.busy(e.other, e.permits(1, 5))
	}},
	{"one permit is a mutex", []Feature{Permits}, func(e *env) {
		c := e.permits(1, 1)
		e.acquire(e.store, c)
		e.busy(e.other, e.permits(1, 1))
		e.release(e.store, c)
		e.acquire(e.other, e.permits(1, 1))
	}},
	{"each claim brings its own limit", []Feature{Permits}, func(e *env) {
		e.acquire(e.store, e.permits(3, 5))
		e.busy(e.other, e.permits(1, 3))
		e.acquire(e.other, e.permits(1, 4))
	}},
	{"exclusive claim excludes permits", []Feature{Permits}, func(e *env) {
		p, w := e.permits(1, 5), e.exclusive()
		e.acquire(e.store, p)
		e.busy(e.other, w)
		e.release(e.store, p)
		e.acquire(e.other, w)
		e.busy(e.store, e.permits(1, 5))
	}},
	{"lighter claim after a refused one", []Feature{Permits}, func(e *env) {
		e.acquire(e.store, e.permits(3, 5))
		e.busy(e.other, e.permits(3, 5))
		e.acquire(e.other, e.permits(2, 5))
	}},
	{"every hold of an owner counts", []Feature{Permits, Reentry}, func(e *env) {
		c := e.permits(1, 4)
		e.acquire(e.store, c)
		e.acquire(e.store, nested(c))
		e.busy(e.other, e.permits(3, 4))
		e.acquire(e.other, e.permits(2, 4))
	}},
	{"own weight excludes no owner", []Feature{Permits, Reentry}, func(e *env) {
		c := e.permits(2, 3)
		e.acquire(e.store, c)
		e.acquire(e.store, nested(c))
	}},
	{"weight of others excludes a holder", []Feature{Permits, Reentry}, func(e *env) {
		c := e.permits(2, 4)
		e.acquire(e.store, c)
		e.acquire(e.other, e.permits(2, 4))
		again := nested(c)
		again.Limit = 3
		e.busy(e.store, again)
	}},
	{"several holds of weight All", []Feature{Shared, Reentry}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		holds := []store.Claim{c}
		for range 4 {
			holds = append(holds, nested(c))
			e.acquire(e.store, holds[len(holds)-1])
		}
		e.busy(e.other, e.reader())
		for _, h := range holds {
			e.release(e.store, h)
		}
		e.acquire(e.other, e.reader())
	}},
}
