package storetest

import (
	"github.com/lockkit/lockkit/core/store"
)

var acquireCases = []testCase{
	{"acquire and release a free key", nil, func(e *env) {
		c := e.exclusive()
		g := e.acquire(e.store, c)
		if g.Owner != c.Owner {
			e.Errorf("granted to owner %q, want the claim's own %q", g.Owner, c.Owner)
		}
		e.isHeld()
		e.release(e.store, c)
		e.isFree()
	}},
	{"repeated claim gets the same grant", nil, func(e *env) {
		c := e.exclusive()
		first := e.acquire(e.store, c)
		for _, s := range []store.Store{e.store, e.other, e.store} {
			g := e.acquire(s, c)
			if e.isSame(g.Token, first.Token); g.Owner != first.Owner {
				e.Errorf("got owner %q, want that of the first grant, %q", g.Owner, first.Owner)
			}
		}
	}},
	{"one release of a repeated claim", nil, func(e *env) {
		c := e.exclusive()
		for range 3 {
			e.acquire(e.store, c)
		}
		e.release(e.store, c)
		e.isFree()
	}},
	{"repeated reader counts once", []Feature{Shared}, func(e *env) {
		c := e.reader()
		e.acquire(e.store, c)
		e.acquire(e.other, c)
		e.release(e.store, c)
		e.isFree()
	}},
	{"repeated claim takes permits once", []Feature{Permits}, func(e *env) {
		c := e.permits(2, 4)
		for range 3 {
			e.acquire(e.store, c)
		}
		e.acquire(e.other, e.permits(2, 4))
	}},
	{"repeated claim renews its TTL", nil, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(20)
		e.acquire(e.store, c)
		e.sleep(e.units(10))
		e.acquire(e.store, c)
		e.sleep(e.units(11))
		e.isHeld()
		e.extend(e.store, c)
	}},
	{"repeated claim never shortens a hold", nil, func(e *env) {
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
	{"refused claim takes nothing", nil, func(e *env) {
		c, late := e.exclusive(), e.exclusive()
		e.acquire(e.store, c)
		e.busy(e.other, late)
		e.notExtended(e.other, late)
		e.release(e.store, c)
		e.isFree()
	}},
	{"refused claim is granted later", nil, func(e *env) {
		c, late := e.exclusive(), e.exclusive()
		e.acquire(e.store, c)
		e.busy(e.other, late)
		e.release(e.store, c)
		if g := e.acquire(e.other, late); g.Owner != late.Owner {
			e.Errorf("granted to owner %q, want %q", g.Owner, late.Owner)
		}
		e.busy(e.store, e.exclusive())
	}},
	// A hold belongs to the key, not to the connection that acquired it.
	{"extend and release from another process", nil, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.extend(e.other, c)
		e.release(e.other, c)
		e.notExtended(e.store, c)
		e.isFree()
	}},
}
