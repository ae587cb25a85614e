package storetest

import (
	"slices"

	"github.com/lockkit/lockkit/core/store"
)

var reentryCases = []testCase{
	{"owner enters again", []Feature{Reentry}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		if g := e.acquire(e.store, nested(c)); g.Owner != c.Owner {
			e.Errorf("granted to owner %q, want %q", g.Owner, c.Owner)
		}
		e.isHeld()
	}},
	{"as many releases as holds", []Feature{Reentry}, func(e *env) {
		c := e.exclusive()
		holds := []store.Claim{c, nested(c), nested(c)}
		for _, h := range holds {
			e.acquire(e.store, h)
			e.acquire(e.store, h) // repeated, as after a lost reply
		}
		slices.Reverse(holds)
		for _, h := range holds {
			e.isHeld()
			e.release(e.store, h)
		}
		e.isFree()
	}},
	{"outer hold released first", []Feature{Reentry}, func(e *env) {
		outer := e.exclusive()
		inner := nested(outer)
		e.acquire(e.store, outer)
		e.acquire(e.store, inner)
		e.release(e.store, outer)
		e.notExtended(e.store, outer)
		e.isHeld()
		e.extend(e.store, inner)
		e.release(e.store, inner)
		e.isFree()
	}},
	{"inner hold expires", []Feature{Reentry}, func(e *env) {
		outer := e.exclusive()
		inner := nested(outer)
		inner.TTL = e.units(1)
		e.acquire(e.store, outer)
		e.acquire(e.store, inner)
		e.outlive(inner.TTL)
		e.notExtended(e.store, inner)
		e.extend(e.store, outer)
		e.notReleased(e.store, inner)
		e.isHeld()
		e.release(e.store, outer)
		e.isFree()
	}},
	{"outer hold expires", []Feature{Reentry}, func(e *env) {
		outer := e.exclusive()
		outer.TTL = e.units(10)
		inner := nested(outer)
		inner.TTL = e.long
		e.acquire(e.store, outer)
		e.acquire(e.store, inner)
		e.outlive(outer.TTL)
		e.notExtended(e.store, outer)
		e.isHeld()
		e.extend(e.store, inner)
		e.acquire(e.store, nested(inner))
	}},
	{"re-entry after an expiry", []Feature{Reentry}, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(1)
		e.acquire(e.store, c)
		e.outlive(c.TTL)
		e.acquire(e.other, e.exclusive())
		e.busy(e.store, nested(c))
	}},
	{"claim heavier than own hold", []Feature{Reentry, Shared}, func(e *env) {
		r := e.reader()
		e.acquire(e.store, r)
		w := nested(r)
		w.Weight = store.All
		e.refused(e.store, w, store.ErrInvalid)
		e.notExtended(e.store, w)
		e.acquire(e.other, e.reader())
		e.extend(e.store, r)
	}},
	{"refused heavier claim leaves nothing", []Feature{Reentry, Shared}, func(e *env) {
		r := e.reader()
		e.acquire(e.store, r)
		w := nested(r)
		w.Weight = store.All
		e.refused(e.store, w, store.ErrInvalid)
		e.release(e.store, r)
		e.isFree()
	}},
	{"reader inside own exclusive hold", []Feature{Reentry, Shared}, func(e *env) {
		w := e.exclusive()
		r := nested(w)
		r.Weight = 1
		e.acquire(e.store, w)
		e.acquire(e.store, r)
		e.release(e.store, w)
		e.busy(e.other, e.exclusive())
		e.acquire(e.other, e.reader())
	}},
	{"heaviest hold limits further claims", []Feature{Reentry, Shared}, func(e *env) {
		w := e.exclusive()
		r := nested(w)
		r.Weight = 1
		e.acquire(e.store, w)
		e.acquire(e.store, r)
		e.acquire(e.store, nested(w))
	}},
	// Only live holds limit further claims.
	{"heaviest hold was released", []Feature{Reentry, Shared}, func(e *env) {
		w := e.exclusive()
		r := nested(w)
		r.Weight = 1
		e.acquire(e.store, w)
		e.acquire(e.store, r)
		e.release(e.store, w)
		e.refused(e.store, nested(w), store.ErrInvalid)
	}},
}

// joiningCases test Claim.Via. It is ignored if the owner that it names does not hold
// the key.
var joiningCases = []testCase{
	{"Via joins the owner that holds", []Feature{Joining}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		j := joining(e.exclusive(), c)
		if g := e.acquire(e.other, j); g.Owner != c.Owner {
			e.Errorf("granted to owner %q, want the joined %q", g.Owner, c.Owner)
		}
		e.release(e.store, c)
		e.isHeld()
		e.release(e.other, j)
		e.isFree()
	}},
	{"repeated join gets the same grant", []Feature{Joining}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		j := joining(e.exclusive(), c)
		first := e.acquire(e.other, j)
		e.release(e.store, c)
		if g := e.acquire(e.other, j); g.Owner != first.Owner || g.Token != first.Token {
			e.Errorf("got owner %q and token %d, want those of the first grant, %q and %d",
				g.Owner, g.Token, first.Owner, first.Token)
		}
		e.release(e.other, j)
		e.isFree()
	}},
	{"joined hold under either owner", []Feature{Joining}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		asSent := joining(e.exclusive(), c)
		g := e.acquire(e.other, asSent)
		asGranted := asSent
		asGranted.Owner, asGranted.Via = g.Owner, ""
		e.extend(e.other, asSent)
		e.extend(e.other, asGranted)
		e.release(e.other, asGranted)
		e.notExtended(e.other, asSent)

		second := joining(e.exclusive(), c)
		e.acquire(e.other, second)
		e.release(e.other, second)
		e.notExtended(e.other, second)
		e.extend(e.store, c)
	}},
	{"Via on a free key", []Feature{Joining}, func(e *env) {
		j := joining(e.exclusive(), e.exclusive())
		if g := e.acquire(e.store, j); g.Owner != j.Owner {
			e.Errorf("granted to owner %q, want the claim's own %q", g.Owner, j.Owner)
		}
	}},
	{"Via while another owner holds", []Feature{Joining}, func(e *env) {
		stranger := e.exclusive()
		e.acquire(e.other, e.exclusive())
		e.busy(e.store, joining(e.exclusive(), stranger))
	}},
	{"Via after the release", []Feature{Joining}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.release(e.store, c)
		j := joining(e.exclusive(), c)
		if g := e.acquire(e.other, j); g.Owner != j.Owner {
			e.Errorf("granted to owner %q, want the claim's own %q", g.Owner, j.Owner)
		}
		e.busy(e.store, nested(c))
	}},
	{"Via after the expiry", []Feature{Joining}, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(1)
		e.acquire(e.store, c)
		e.outlive(c.TTL)
		e.acquire(e.other, e.exclusive())
		e.busy(e.store, joining(e.exclusive(), c))
	}},
	{"claim heavier than the joined hold", []Feature{Joining, Shared}, func(e *env) {
		r := e.reader()
		e.acquire(e.store, r)
		w := joining(e.exclusive(), r)
		e.refused(e.other, w, store.ErrInvalid)
		e.notExtended(e.other, w)
		e.release(e.store, r)
		e.isFree()
	}},
	{"reader joins a reader", []Feature{Joining, Shared}, func(e *env) {
		r := e.reader()
		e.acquire(e.store, r)
		if g := e.acquire(e.other, joining(e.reader(), r)); g.Owner != r.Owner {
			e.Errorf("granted to owner %q, want the joined %q", g.Owner, r.Owner)
		}
	}},
	{"joined hold expires", []Feature{Joining}, func(e *env) {
		c := e.exclusive()
		j := joining(e.exclusive(), c)
		j.TTL = e.units(1)
		e.acquire(e.store, c)
		e.acquire(e.other, j)
		e.outlive(j.TTL)
		e.notExtended(e.other, j)
		e.extend(e.store, c)
	}},
}
