package storetest

import "github.com/lockkit/lockkit/core/store"

// minute is a minute in microseconds. The cases add it to the last token to make a
// MinToken, like the token of a server whose clock is a minute ahead.
const minute = 60_000_000

var tokenCases = []testCase{
	{"tokens grow from release to release", []Feature{Fencing}, func(e *env) {
		var last uint64
		for range 20 {
			last = e.grows(e.store, last)
			last = e.grows(e.other, last)
		}
	}},
	{"tokens grow across expiry", []Feature{Fencing}, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(1)
		g := e.acquire(e.store, c)
		e.outlive(c.TTL)
		e.grows(e.other, g.Token)
	}},
	{"tokens grow over a forgotten key", []Feature{Fencing}, func(e *env) {
		var last uint64
		for range 3 {
			last = e.grows(e.store, last)
			e.sleep(e.units(2))
		}
		e.grows(e.other, last)
	}},
	{"tokens grow across readers", []Feature{Fencing, Shared}, func(e *env) {
		last := e.grows(e.store, 0)
		r := e.reader()
		e.acquire(e.other, r)
		e.release(e.other, r)
		e.grows(e.store, last)
	}},
	{"same token for nested holds", []Feature{Fencing, Reentry}, func(e *env) {
		c := e.exclusive()
		g := e.acquire(e.store, c)
		inner := nested(c)
		e.sameToken(e.store, inner, g.Token)
		e.release(e.store, c)
		e.sameToken(e.store, nested(c), g.Token)
		e.sameToken(e.other, inner, g.Token)
	}},
	{"same token for a joining claim", []Feature{Fencing, Joining}, func(e *env) {
		c := e.exclusive()
		g := e.acquire(e.store, c)
		e.sameToken(e.other, joining(e.exclusive(), c), g.Token)
	}},
	{"new token after nested holds", []Feature{Fencing, Reentry}, func(e *env) {
		c := e.exclusive()
		inner := nested(c)
		g := e.acquire(e.store, c)
		e.acquire(e.store, inner)
		e.release(e.store, c)
		e.release(e.store, inner)
		e.grows(e.other, g.Token)
	}},
	{"readers have no token", []Feature{Fencing, Shared}, func(e *env) {
		e.sameToken(e.store, e.reader(), 0)
		e.sameToken(e.other, e.reader(), 0)
	}},
	{"permits have no token", []Feature{Fencing, Permits}, func(e *env) {
		e.sameToken(e.store, e.permits(2, 3), 0)
	}},
	{"no token for a nested reader", []Feature{Fencing, Reentry, Shared}, func(e *env) {
		c := e.exclusive()
		g := e.acquire(e.store, c)
		r := nested(c)
		r.Weight = 1
		e.sameToken(e.store, r, 0)
		e.sameToken(e.store, nested(c), g.Token)
	}},
	{"grant has at least MinToken", []Feature{Fencing}, func(e *env) {
		c := e.exclusive()
		c.MinToken = e.grows(e.store, 0) + minute
		if g := e.acquire(e.other, c); g.Token < c.MinToken {
			e.Errorf("got token %d, want at least %d", g.Token, c.MinToken)
		} else {
			e.sameToken(e.store, c, g.Token)
		}
	}},
	{"tokens stay above an earlier MinToken", []Feature{Fencing}, func(e *env) {
		c := e.exclusive()
		c.MinToken = e.grows(e.store, 0) + minute
		g := e.acquire(e.store, c)
		e.release(e.store, c)
		last := e.grows(e.other, g.Token)
		e.sleep(e.units(2))
		e.grows(e.store, last)
	}},
	{"tokens stay above an expired MinToken", []Feature{Fencing}, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(1)
		c.MinToken = e.grows(e.store, 0) + minute
		g := e.acquire(e.store, c)
		e.outlive(c.TTL)
		e.grows(e.other, g.Token)
	}},
	{"MinToken below the next token", []Feature{Fencing}, func(e *env) {
		c := e.exclusive()
		last := e.grows(e.store, 0)
		c.MinToken = 1
		if g := e.acquire(e.store, c); g.Token <= last {
			e.Errorf("got token %d, want more than %d", g.Token, last)
		}
	}},
	{"repeated claim raises the token", []Feature{Fencing}, func(e *env) {
		c := e.exclusive()
		g := e.acquire(e.store, c)
		raised := c
		raised.MinToken = g.Token + minute
		higher := e.acquire(e.store, raised)
		if higher.Token < raised.MinToken {
			e.Errorf("got token %d, want at least %d", higher.Token, raised.MinToken)
		}
		higher.Token = e.sameToken(e.other, c, higher.Token)
		e.release(e.store, c)
		e.grows(e.other, higher.Token)
	}},
	{"MinToken of a refused claim", []Feature{Fencing}, func(e *env) {
		c, late := e.exclusive(), e.exclusive()
		g := e.acquire(e.store, c)
		late.MinToken = g.Token + minute
		e.busy(e.other, late)
		e.sameToken(e.store, c, g.Token)
	}},
}

// grows acquires and releases the key. It returns the token, and fails the case unless
// the token is above the token last.
func (e *env) grows(s store.Store, last uint64) uint64 {
	e.Helper()
	c := e.exclusive()
	g := e.acquire(s, c)
	if g.Token <= last {
		e.Fatalf("got token %d, want more than %d", g.Token, last)
	}
	e.release(s, c)
	return g.Token
}

// sameToken acquires c again. It fails the case unless the token of the answer and the
// parameter token can belong to one grant. It returns the greater of these two tokens.
func (e *env) sameToken(s store.Store, c store.Claim, token uint64) uint64 {
	e.Helper()
	g := e.acquire(s, c)
	e.isSame(g.Token, token)
	return max(g.Token, token)
}

// isSame fails the case unless the two tokens can belong to one grant.
func (e *env) isSame(got, want uint64) {
	e.Helper()
	near := want > 0 && got+minute > want && got < want+minute
	if got != want && (e.can(SameToken) || !near) {
		e.Errorf("got token %d, want %d", got, want)
	}
}
