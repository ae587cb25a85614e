package storetest

import (
	"errors"
	"math"
	"strings"

	"github.com/lockkit/lockkit/core/store"
)

// stepCases test all tokens that belong to a grant: the token in the Grant, and the
// tokens of the leases to which a Locker passes the hold on. No other grant has one of
// these tokens.
//
// If tokens are times, the clock soon passes all tokens of a grant. So many cases begin
// with a token that is ahead of the clock.
var stepCases = []testCase{
	{"grant after a release", []Feature{Fencing}, func(e *env) {
		last := e.passes(e.store, e.exclusive(), 0)
		for range 20 {
			last = e.passes(e.other, e.exclusive(), last)
			last = e.passes(e.store, e.exclusive(), last)
		}
	}},
	{"grant ahead of the clock", []Feature{Fencing}, func(e *env) {
		c := e.ahead()
		last := e.passes(e.store, c, 0)
		for range 5 {
			last = e.passes(e.other, e.exclusive(), last)
		}
	}},
	{"grant after the key was forgotten", []Feature{Fencing}, func(e *env) {
		last := e.passes(e.store, e.ahead(), 0)
		for range 3 {
			e.sleep(e.units(2))
			last = e.passes(e.other, e.exclusive(), last)
		}
	}},
	{"grant after an expiry", []Feature{Fencing}, func(e *env) {
		c := e.ahead()
		c.TTL = e.units(1)
		g := e.acquire(e.store, c)
		e.outlive(c.TTL)
		e.passes(e.other, e.exclusive(), g.Token)
	}},
	{"waiter granted after an expiry", []Feature{Fencing}, func(e *env) {
		c, w := e.ahead(), e.waiting()
		c.TTL = e.units(9)
		g := e.acquire(e.store, c)
		e.busy(e.other, w)
		e.outlive(c.TTL)
		e.passes(e.other, w, g.Token)
	}},
	{"waiter granted after a release", []Feature{Fencing, Watching}, func(e *env) {
		for _, c := range []store.Claim{e.exclusive(), e.ahead()} {
			w := e.waiting()
			g := e.acquire(e.store, c)
			e.busy(e.other, w)
			woken := e.watch(e.other, w)
			g.Token = e.sameToken(e.store, c, g.Token)
			e.release(e.store, c)
			e.wakes(woken)
			last := e.passes(e.other, w, g.Token)
			e.passes(e.store, e.exclusive(), last)
		}
	}},
	{"fair waiter granted after a release", []Feature{Fencing, Fair}, func(e *env) {
		for _, c := range []store.Claim{e.exclusive(), e.ahead()} {
			first, second := e.fair(), e.fair()
			g := e.acquire(e.store, c)
			e.busy(e.other, first)
			e.busy(e.store, second)
			e.release(e.store, c)
			last := e.passes(e.other, first, g.Token)
			e.passes(e.store, second, last)
		}
	}},
	// The store may admit this waiter without a further request.
	{"waiter with Push", []Feature{Fencing, Watching}, func(e *env) {
		for _, c := range []store.Claim{e.exclusive(), e.ahead()} {
			w := e.waiting()
			w.Push = true
			g := e.acquire(e.store, c)
			woken := e.watch(e.other, w)
			e.busy(e.other, w)
			e.release(e.store, c)
			e.wakes(woken)
			last := e.passes(e.other, w, g.Token)
			e.passes(e.store, e.exclusive(), last)
		}
	}},
	{"grant after refused claims", []Feature{Fencing}, func(e *env) {
		for _, c := range []store.Claim{e.exclusive(), e.ahead()} {
			w := e.waiting()
			g := e.acquire(e.store, c)
			e.busy(e.other, e.exclusive())
			e.busy(e.other, w)
			e.giveUp(e.other, w)
			g.Token = e.sameToken(e.store, c, g.Token)
			e.release(e.store, c)
			e.passes(e.other, e.exclusive(), g.Token)
		}
	}},
	{"grant after readers", []Feature{Fencing, Shared}, func(e *env) {
		c := e.ahead()
		g := e.acquire(e.store, c)
		e.release(e.store, c)
		for range 3 {
			r := e.reader()
			e.acquire(e.other, r)
			e.release(e.other, r)
		}
		e.passes(e.store, e.exclusive(), g.Token)
	}},
	{"grant after an extension", []Feature{Fencing}, func(e *env) {
		for _, c := range []store.Claim{e.exclusive(), e.ahead()} {
			g := e.acquire(e.store, c)
			for range 3 {
				e.extend(e.store, c)
			}
			g.Token = e.sameToken(e.other, c, g.Token)
			// The release goes through the store of the last call, which knows its own
			// calls in flight.
			e.release(e.other, c)
			e.passes(e.other, e.exclusive(), g.Token)
		}
	}},
	{"grant after a kept key", []Feature{Fencing, Keeping}, func(e *env) {
		c, next := e.ahead(), e.exclusive()
		g := e.acquire(e.store, c)
		e.release(e.store, keeping(c, e.units(1)))
		e.becomesFree(e.other, next)
		e.passes(e.other, next, g.Token)
	}},
	{"grant after a run", []Feature{Fencing, Records}, func(e *env) {
		c := e.run("begun")
		c.MinToken = e.ahead().MinToken
		g := e.acquire(e.store, c)
		e.release(e.store, e.failed(c, "failed", 1))
		again := e.run("again")
		second := e.acquire(e.other, again)
		e.isAfter(second.Token, g.Token)
		e.release(e.other, e.done(again, "answer"))
		e.passes(e.store, e.exclusive(), second.Token)
	}},
	{"grant after an undone run", []Feature{Fencing, Records}, func(e *env) {
		for _, c := range []store.Claim{e.exclusive(), e.ahead()} {
			c.Record = e.run("begun").Record
			g := e.acquire(e.store, c)
			undone := c
			undone.Record, undone.Undo = nil, true
			e.release(e.store, undone)
			e.passes(e.other, e.exclusive(), g.Token)
		}
	}},
	{"repeated claim uses no token", []Feature{Fencing}, func(e *env) {
		for _, c := range []store.Claim{e.exclusive(), e.ahead()} {
			g := e.acquire(e.store, c)
			g.Token = e.sameToken(e.store, c, g.Token)
			g.Token = e.sameToken(e.other, c, g.Token)
			// The release goes through the store of the last call, which knows its own
			// calls in flight.
			e.release(e.other, c)
			e.passes(e.other, e.exclusive(), g.Token)
		}
	}},
	{"nested holds use no token", []Feature{Fencing, Reentry}, func(e *env) {
		for _, c := range []store.Claim{e.exclusive(), e.ahead()} {
			g := e.acquire(e.store, c)
			for range 3 {
				inner := nested(c)
				g.Token = e.sameToken(e.store, inner, g.Token)
				e.release(e.store, inner)
			}
			g.Token = e.sameToken(e.other, c, g.Token)
			// The release goes through the store of the last call, which knows its own
			// calls in flight.
			e.release(e.other, c)
			e.passes(e.other, e.exclusive(), g.Token)
		}
	}},
	{"joining claim uses no token", []Feature{Fencing, Joining}, func(e *env) {
		for _, c := range []store.Claim{e.exclusive(), e.ahead()} {
			joins := joining(e.exclusive(), c)
			g := e.acquire(e.store, c)
			g.Token = e.sameToken(e.other, joins, g.Token)
			e.release(e.store, c)
			g.Token = e.sameToken(e.other, joins, g.Token)
			e.release(e.other, joins)
			e.passes(e.store, e.exclusive(), g.Token)
		}
	}},
	// The next grant begins after all tokens of a grant with a MinToken.
	{"grant owns tokens after MinToken", []Feature{Fencing}, func(e *env) {
		c := e.ahead()
		g := e.acquire(e.store, c)
		if g.Token < c.MinToken {
			e.Errorf("got token %d, want at least %d", g.Token, c.MinToken)
		}
		e.release(e.store, c)
		next := e.exclusive()
		next.MinToken = g.Token + 1 // a token that the last grant has
		e.passes(e.other, next, g.Token)
	}},
	// The next grant begins after all tokens of a grant whose token was raised by a
	// repeated claim.
	{"grant owns tokens after a raise", []Feature{Fencing}, func(e *env) {
		c := e.ahead()
		g := e.acquire(e.store, c)
		raised := c
		for _, by := range []uint64{1, store.TokenStep / 2, store.TokenStep, minute} {
			raised.MinToken = g.Token + by
			if g = e.acquire(e.store, raised); g.Token < raised.MinToken {
				e.Errorf("got token %d, want at least %d", g.Token, raised.MinToken)
			}
			g.Token = e.sameToken(e.other, c, g.Token)
		}
		e.release(e.store, c)
		e.passes(e.other, e.exclusive(), g.Token)
	}},
	{"tokens fit in 53 bits", []Feature{Fencing}, func(e *env) {
		if last := e.passes(e.store, e.exclusive(), 0) + store.TokenStep - 1; last >= 1<<53 {
			e.Errorf("token %d belongs to the grant", last)
		}
	}},
	// A MinToken with which a token of the grant would reach 2^53 is refused.
	{"MinToken too large", []Feature{Fencing}, func(e *env) {
		last := e.passes(e.store, e.exclusive(), 0)
		for _, least := range []uint64{1<<53 - store.TokenStep + 1, 1 << 53, 1 << 63, math.MaxUint64} {
			c := e.exclusive()
			c.MinToken = least
			_, err := e.store.Acquire(e.Context(), c)
			if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "2^53") {
				e.Errorf("a least token of %d: got %v, want %v and what is allowed", least, err, store.ErrInvalid)
			}
			e.notExtended(e.store, c)
		}
		last = e.passes(e.other, e.exclusive(), last)
		if last >= 1<<53 {
			e.Errorf("token %d was granted", last)
		}
	}},
}

// ahead returns a claim of a new owner whose MinToken is ahead of the store's clock, if
// tokens are times.
func (e *env) ahead() store.Claim {
	e.Helper()
	c := e.exclusive()
	probe := e.exclusive()
	probe.Key += ":probe"
	c.MinToken = e.acquire(e.store, probe).Token + 10*minute
	e.release(e.store, probe)
	return c
}

// passes acquires and releases the key, and returns the token. It fails the case unless
// the token is greater than all tokens of the grant with token last.
func (e *env) passes(s store.Store, c store.Claim, last uint64) uint64 {
	e.Helper()
	g := e.acquire(s, c)
	if last > 0 {
		e.isAfter(g.Token, last)
	}
	e.release(s, c)
	return g.Token
}

// isAfter fails the case unless token is greater than all tokens of the grant with
// token last.
func (e *env) isAfter(token, last uint64) {
	e.Helper()
	if token < last+store.TokenStep {
		e.Fatalf("got token %d, want at least %d after %d", token, last+store.TokenStep, last)
	}
}
