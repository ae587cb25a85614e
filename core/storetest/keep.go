package storetest

import (
	"errors"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

var keepCases = []testCase{
	{"kept key becomes free on time", []Feature{Keeping}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		passed := e.stopwatch()
		e.release(e.store, keeping(c, e.units(10)))
		e.isHeld()
		e.becomesFree(e.other, e.exclusive())
		if at := passed(); at < e.units(10)-tick {
			e.Errorf("another owner got in after %v, the key was to be kept for %v", at, e.units(10))
		}
	}},
	{"keep longer than the hold", []Feature{Keeping}, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(10)
		e.acquire(e.store, c)
		e.release(e.store, keeping(c, e.long))
		e.outlive(c.TTL)
		e.isHeld()
	}},
	{"keep shorter than the hold", []Feature{Keeping}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.release(e.store, keeping(c, e.units(1)))
		e.outlive(e.units(1))
		e.isFree()
	}},
	{"kept key cannot be extended", []Feature{Keeping}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.release(e.store, keeping(c, e.units(5)))
		e.notExtended(e.store, c)
		e.outlive(e.units(5))
		e.isFree()
	}},
	{"kept key cannot be released", []Feature{Keeping}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.release(e.store, keeping(c, e.long))
		e.notReleased(e.store, c)
		e.notReleased(e.other, c)
		e.isHeld()
	}},
	{"re-entry into a kept key", []Feature{Keeping, Reentry}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.release(e.store, keeping(c, e.long))
		e.busy(e.store, nested(c))
	}},
	{"join of a kept key", []Feature{Keeping, Joining}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.release(e.store, keeping(c, e.long))
		e.busy(e.store, joining(e.exclusive(), c))
	}},
	{"repeated release with Keep", []Feature{Keeping}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.release(e.store, keeping(c, e.units(10)))
		e.notReleased(e.store, keeping(c, e.long))
		e.isHeld()
		e.outlive(e.units(10))
		e.isFree()
	}},
	{"release with Keep without a hold", []Feature{Keeping}, func(e *env) {
		e.notReleased(e.store, keeping(e.exclusive(), e.long))
		e.isFree()
	}},
	{"release with Keep beside a successor", []Feature{Keeping}, func(e *env) {
		c, next := e.exclusive(), e.exclusive()
		c.TTL = e.units(1)
		e.acquire(e.store, c)
		e.outlive(c.TTL)
		e.acquire(e.other, next)
		e.notReleased(e.store, keeping(c, e.long))
		e.extend(e.other, next)
		e.release(e.other, next)
		e.isFree()
	}},
	{"RetryAfter of a kept key", []Feature{Keeping}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.release(e.store, keeping(c, e.units(10)))
		e.retryWithin(e.busy(e.other, e.exclusive()), e.units(10))
	}},
	{"poller of kept key", []Feature{Keeping}, func(e *env) { e.pollKept(e.exclusive()) }},
	{"fair poller of kept key", []Feature{Keeping, Fair}, func(e *env) { e.pollKept(e.fair()) }},
	{"kept share of a reader", []Feature{Keeping, Shared}, func(e *env) {
		r := e.reader()
		e.acquire(e.store, r)
		e.release(e.store, keeping(r, e.long))
		another := e.reader()
		e.acquire(e.other, another)
		e.release(e.other, another)
		e.isHeld()
	}},
	{"kept permits stay taken", []Feature{Keeping, Permits}, func(e *env) {
		a, b := e.permits(2, 4), e.permits(1, 4)
		e.acquire(e.store, a)
		e.acquire(e.store, b)
		e.release(e.store, keeping(a, e.units(10)))
		e.release(e.store, keeping(b, e.units(10)))
		e.busy(e.other, e.permits(2, 4))
		e.acquire(e.other, e.permits(1, 4))
		e.outlive(e.units(10))
		e.acquire(e.other, e.permits(3, 4))
	}},
	{"tokens grow over a kept key", []Feature{Keeping, Fencing}, func(e *env) {
		c, next := e.exclusive(), e.exclusive()
		g := e.acquire(e.store, c)
		e.release(e.store, keeping(c, e.units(1)))
		e.outlive(e.units(1))
		if got := e.acquire(e.other, next); got.Token <= g.Token {
			e.Errorf("got token %d, want more than %d", got.Token, g.Token)
		}
	}},
	{"other hold beside a kept one", []Feature{Keeping, Reentry}, func(e *env) {
		c := e.exclusive()
		inner := nested(c)
		e.acquire(e.store, c)
		e.acquire(e.store, inner)
		e.release(e.store, keeping(c, e.units(1)))
		e.extend(e.store, inner)
		e.outlive(e.units(1))
		e.isHeld()
		e.release(e.store, inner)
		e.isFree()
	}},
}

func keeping(c store.Claim, d time.Duration) store.Claim {
	c.Keep = d
	return c
}

// pollKept makes w ask for a key that a release keeps, like a waiter without wake-ups.
// Each request comes after the RetryAfter of the previous answer. The first request
// after the kept time must be granted. A store that wakes its waiters may refuse one
// request after that time, because the store may know its server's clock only roughly.
func (e *env) pollKept(w store.Claim) {
	e.Helper()
	c, keep := e.exclusive(), e.units(10)
	e.acquire(e.store, c)
	e.busy(e.other, w)
	e.release(e.store, keeping(c, keep))
	passed, refusals := e.stopwatch(), 0
	if e.can(Watching) {
		refusals = 1
	}
	for over := false; ; {
		_, err := e.other.Acquire(e.Context(), w)
		var busy *store.BusyError
		switch {
		case err == nil:
			return
		case !errors.As(err, &busy):
			e.Fatalf("acquire: got %v, want a grant at last", err)
		case over:
			if refusals--; refusals < 0 {
				e.Fatalf("acquire: got %v after the kept time, want a grant", err)
			}
		}
		e.retryWithin(busy, keep)
		over = passed()+busy.RetryAfter >= keep
		e.sleep(busy.RetryAfter + tick)
	}
}
