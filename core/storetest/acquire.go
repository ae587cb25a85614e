package storetest

import (
	"github.com/lockkit/lockkit/core/store"
)

var acquireCases = []testCase{
	{"a free key is granted, and free again after the release", nil, func(e *env) {
		c := e.exclusive()
		g := e.acquire(e.store, c)
		if g.Owner != c.Owner {
			e.Errorf("granted to owner %q, want the claim's own %q", g.Owner, c.Owner)
		}
		e.isHeld()
		e.release(e.store, c)
		e.isFree()
	}},
	{"the same claim again gives the same grant", nil, func(e *env) {
		c := e.exclusive()
		first := e.acquire(e.store, c)
		for _, s := range []store.Store{e.store, e.other, e.store} {
			g := e.acquire(s, c)
			if e.isSame(g.Token, first.Token); g.Owner != first.Owner {
				e.Errorf("got owner %q, want that of the first grant, %q", g.Owner, first.Owner)
			}
		}
	}},
	{"a repeated claim is given up by one release", nil, func(e *env) {
		c := e.exclusive()
		for range 3 {
			e.acquire(e.store, c)
		}
		e.release(e.store, c)
		e.isFree()
	}},
	{"a repeated reader counts once", []Feature{Shared}, func(e *env) {
		c := e.reader()
		e.acquire(e.store, c)
		e.acquire(e.other, c)
		e.release(e.store, c)
		e.isFree()
	}},
	{"a repeated claim takes its permits once", []Feature{Permits}, func(e *env) {
		c := e.permits(2, 4)
		for range 3 {
			e.acquire(e.store, c)
		}
		e.acquire(e.other, e.permits(2, 4))
	}},
	{"a repeated claim lasts for its TTL from then", nil, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(20)
		e.acquire(e.store, c)
		e.sleep(e.units(10))
		e.acquire(e.store, c)
		e.sleep(e.units(11))
		e.isHeld()
		e.extend(e.store, c)
	}},
	{"a repeated claim does not shorten what an extension gave", nil, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(10)
		e.acquire(e.store, c)
		longer := c
		longer.TTL = e.long
		e.extend(e.store, longer)
		e.acquire(e.store, c)
		e.outlive(c.TTL)
		e.isHeld()
	}},
	{"a refused claim takes nothing", nil, func(e *env) {
		c, late := e.exclusive(), e.exclusive()
		e.acquire(e.store, c)
		e.busy(e.other, late)
		e.notExtended(e.other, late)
		e.release(e.store, c)
		e.isFree()
	}},
	{"a claim that was refused is granted when it asks again", nil, func(e *env) {
		c, late := e.exclusive(), e.exclusive()
		e.acquire(e.store, c)
		e.busy(e.other, late)
		e.release(e.store, c)
		if g := e.acquire(e.other, late); g.Owner != late.Owner {
			e.Errorf("granted to owner %q, want %q", g.Owner, late.Owner)
		}
		e.busy(e.store, e.exclusive())
	}},
	{"a hold belongs to the key, not to the connection", nil, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.extend(e.other, c)
		e.release(e.other, c)
		e.notExtended(e.store, c)
		e.isFree()
	}},
}
