package storetest

import (
	"errors"
	"testing"

	"github.com/lockkit/lockkit/core"
)

var handoverCases = []testCase{
	{"a handover passes the key on", []Feature{Handover}, func(e *env) {
		from, to := e.exclusive(), e.exclusive()
		e.acquire(e.store, from)
		if g := e.handsOver(from, to); g.Owner != to.Owner {
			e.Errorf("granted to owner %q, want %q", g.Owner, to.Owner)
		}
		e.notExtended(e.store, from)
		e.notReleased(e.store, from)
		e.isHeld()
		e.extend(e.store, to)
		e.release(e.store, to)
		e.isFree()
	}},
	{"a handover gives a new token", []Feature{Handover, Fencing}, func(e *env) {
		from, to := e.exclusive(), e.exclusive()
		last := e.acquire(e.store, from).Token
		for range 5 {
			g := e.handsOver(from, to)
			if g.Token <= last {
				e.Errorf("got token %d, want more than %d", g.Token, last)
			}
			e.sameToken(e.store, to, g.Token)
			last, from, to = g.Token, to, e.exclusive()
		}
	}},
	{"a handover of what is not held does nothing", []Feature{Handover}, func(e *env) {
		from, to := e.exclusive(), e.exclusive()
		e.noHandover(from, to, core.ErrLost)
		e.notExtended(e.store, to)
		e.isFree()
	}},
	{"a handover of a lost hold does not disturb the successor", []Feature{Handover}, func(e *env) {
		from, next, to := e.exclusive(), e.exclusive(), e.exclusive()
		from.TTL = e.units(1)
		e.acquire(e.store, from)
		e.outlive(from.TTL)
		e.acquire(e.other, next)
		e.noHandover(from, to, core.ErrLost)
		e.notExtended(e.store, to)
		e.extend(e.other, next)
	}},
	{"a handed-over hold lasts for its own TTL", []Feature{Handover}, func(e *env) {
		from, to := e.exclusive(), e.exclusive()
		from.TTL = e.units(5)
		e.acquire(e.store, from)
		e.handsOver(from, to)
		e.outlive(from.TTL)
		e.isHeld()
		e.extend(e.store, to)
	}},
	{"a fair handover does not get past those who wait", []Feature{Handover, Fair}, func(e *env) {
		from, first, to := e.exclusive(), e.fair(), e.fair()
		e.acquire(e.store, from)
		e.busy(e.other, first)
		e.noHandover(from, to, core.ErrBusy)
		e.notExtended(e.store, from)
		e.notExtended(e.store, to)
		e.acquire(e.other, first)
	}},
	{"a handover that leaves the key free wakes who waits", []Feature{Handover, Fair, Watching}, func(e *env) {
		from, first, to := e.exclusive(), e.fair(), e.fair()
		e.acquire(e.store, from)
		e.busy(e.other, first)
		woken := e.watch(e.other, first)
		e.noHandover(from, to, core.ErrBusy)
		e.wakes(woken)
	}},
	{"a fair handover to who is first in line is granted", []Feature{Handover, Fair}, func(e *env) {
		from, to, second := e.exclusive(), e.fair(), e.fair()
		e.acquire(e.store, from)
		e.busy(e.store, to)
		e.busy(e.other, second)
		e.handsOver(from, to)
		e.busy(e.other, second)
		e.release(e.store, to)
		e.acquire(e.other, second)
	}},
	{"a handover of one hold of several releases only that", []Feature{Handover, Reentry}, func(e *env) {
		from, to := e.exclusive(), e.exclusive()
		inner := nested(from)
		e.acquire(e.store, from)
		e.acquire(e.store, inner)
		e.noHandover(inner, to, core.ErrBusy)
		e.notExtended(e.store, inner)
		e.notExtended(e.store, to)
		e.extend(e.store, from)
	}},
	{"the same handover again changes nothing", []Feature{Handover}, func(e *env) {
		from, to := e.exclusive(), e.exclusive()
		e.acquire(e.store, from)
		e.handsOver(from, to)
		e.noHandover(from, to, core.ErrLost)
		e.extend(e.store, to)
		e.release(e.store, to)
		e.noHandover(from, to, core.ErrLost)
		e.notExtended(e.store, to)
		e.isFree()
	}},
	{"a handover that comes after the release of its lease changes nothing", []Feature{Handover}, func(e *env) {
		from, to := e.exclusive(), e.exclusive()
		e.acquire(e.store, from)
		e.release(e.store, from)
		e.noHandover(from, to, core.ErrLost)
		e.notExtended(e.store, to)
		e.isFree()
	}},
	{"an acquire after a handover gives the same grant", []Feature{Handover}, func(e *env) {
		from, to := e.exclusive(), e.exclusive()
		e.acquire(e.store, from)
		g := e.handsOver(from, to)
		if again := e.acquire(e.store, to); again.Token != g.Token || again.Owner != g.Owner {
			e.Errorf("got %+v, then %+v", g, again)
		}
		e.release(e.store, to)
		e.isFree()
	}},
	{"a handover to a claim that was given up leaves the key free", []Feature{Handover, Tombstones}, func(e *env) {
		from, to := e.exclusive(), e.exclusive()
		e.acquire(e.store, from)
		e.notReleased(e.store, to)
		e.noHandover(from, to, core.ErrBusy)
		e.notExtended(e.store, from)
		e.notExtended(e.store, to)
		e.isFree()
	}},
	{"a handover to a claim that was given up wakes who waits", []Feature{Handover, Tombstones, Watching}, func(e *env) {
		from, to, first := e.exclusive(), e.exclusive(), e.waiting()
		e.acquire(e.store, from)
		e.notReleased(e.store, to)
		woken := e.watch(e.other, first)
		e.busy(e.other, first)
		e.noHandover(from, to, core.ErrBusy)
		e.wakes(woken)
		e.acquire(e.other, first)
	}},
	{"a handover that yields to nobody is granted", []Feature{Handover, Watching}, func(e *env) {
		from, to := e.exclusive(), yielding(e.exclusive())
		e.acquire(e.store, from)
		e.handsOver(from, to)
		e.notExtended(e.store, from)
		e.extend(e.store, to)
	}},
	{"a handover gets past those who wait, unless it yields", []Feature{Handover, Watching}, func(e *env) {
		from, first, to, last := e.exclusive(), e.waiting(), e.exclusive(), yielding(e.exclusive())
		e.acquire(e.store, from)
		woken := e.watch(e.other, first)
		e.busy(e.other, first)
		e.handsOver(from, to)
		e.busy(e.other, first)
		e.noHandover(to, last, core.ErrBusy)
		e.notExtended(e.store, to)
		e.notExtended(e.store, last)
		e.wakes(woken)
		e.acquire(e.other, first)
	}},
	{"a handover that yields does not yield to its own place", []Feature{Handover, Watching}, func(e *env) {
		from, to := e.exclusive(), e.waiting()
		e.acquire(e.store, from)
		e.watch(e.store, to)
		e.busy(e.store, to)
		e.handsOver(from, yielding(to))
		e.release(e.store, to)
		e.isFree()
	}},
	{"a handover yields to no one who has died waiting", []Feature{Handover, Fair}, func(e *env) {
		from, dead, to := e.exclusive(), e.waiting(), yielding(e.exclusive())
		dead.TTL = e.units(1)
		e.acquire(e.store, from)
		e.busy(e.other, dead)
		e.outlive(dead.TTL)
		e.handsOver(from, to)
		e.extend(e.store, to)
	}},
	{"a handover between readers leaves the others in", []Feature{Handover, Shared}, func(e *env) {
		from, to, r := e.reader(), e.reader(), e.reader()
		e.acquire(e.store, from)
		e.acquire(e.store, r)
		e.handsOver(from, to)
		e.notExtended(e.store, from)
		e.extend(e.store, r)
		e.extend(e.store, to)
		e.isHeld()
	}},
}

// spareCases are about the tokens that a handover brings along for leases that
// come later. A store may spare none.
var spareCases = []testCase{
	{"a handover gives as many as it is asked for, or none", []Feature{Handover}, func(e *env) {
		from := e.exclusive()
		e.acquire(e.store, from)
		for _, n := range []int{1, 15} {
			to := sparing(e.exclusive(), n)
			g := e.handsOver(from, to)
			if none := g.Spare == 0 && e.can(Fencing); g.Spare != n && !none {
				e.Errorf("asked for %d spare leases, got %d", n, g.Spare)
			}
			from = to
		}
		e.release(e.store, from)
		e.isFree()
	}},
	{"a handover that asks for none gets none", []Feature{Handover}, func(e *env) {
		from, to, last := e.exclusive(), sparing(e.exclusive(), 15), e.exclusive()
		e.acquire(e.store, from)
		e.handsOver(from, to)
		if g := e.handsOver(to, last); g.Spare != 0 {
			e.Errorf("got %d spare leases", g.Spare)
		}
	}},
	{"a handover to a reader gives none", []Feature{Handover, Shared}, func(e *env) {
		from := e.exclusive()
		e.acquire(e.store, from)
		if g := e.handsOver(from, sparing(e.reader(), 15)); g.Spare != 0 || g.Token != 0 {
			e.Errorf("got token %d and %d spare leases", g.Token, g.Spare)
		}
	}},
	{"a handover of permits gives none", []Feature{Handover, Permits}, func(e *env) {
		from := e.permits(2, 3)
		e.acquire(e.store, from)
		if g := e.handsOver(from, sparing(e.permits(2, 3), 15)); g.Spare != 0 || g.Token != 0 {
			e.Errorf("got token %d and %d spare leases", g.Token, g.Spare)
		}
	}},
	{"tokens grow past them from release to release", []Feature{Handover, Fencing}, func(e *env) {
		to, last := e.spares()
		e.release(e.store, to)
		e.grows(e.store, e.grows(e.other, last))
	}},
	{"tokens grow past them while the key is forgotten", []Feature{Handover, Fencing}, func(e *env) {
		to, last := e.spares()
		e.release(e.store, to)
		e.sleep(e.units(2))
		e.grows(e.other, last)
	}},
	{"tokens grow past them across expiry", []Feature{Handover, Fencing}, func(e *env) {
		from, to := e.exclusive(), sparing(e.exclusive(), minute)
		to.TTL = e.units(1)
		e.acquire(e.store, from)
		g := e.handsOver(from, to)
		e.outlive(to.TTL)
		e.grows(e.other, g.Token+uint64(g.Spare))
	}},
	{"tokens grow past them from handover to handover", []Feature{Handover, Fencing}, func(e *env) {
		from, last := e.spares()
		for range 5 {
			to := sparing(e.exclusive(), 15)
			g := e.handsOver(from, to)
			if g.Token <= last {
				e.Errorf("got token %d, want more than %d", g.Token, last)
			}
			from, last = to, g.Token+uint64(g.Spare)
		}
		e.release(e.store, from)
		e.grows(e.other, last)
	}},
	{"tokens grow past them where somebody waits", []Feature{Handover, Fencing, Watching}, func(e *env) {
		from, first, to := e.exclusive(), e.waiting(), sparing(e.exclusive(), minute)
		e.acquire(e.store, from)
		e.watch(e.other, first)
		e.busy(e.other, first)
		g := e.handsOver(from, to)
		last := g.Token + uint64(g.Spare)
		e.sameToken(e.store, to, last)
		e.release(e.store, to)
		if g := e.acquire(e.other, first); g.Token <= last {
			e.Errorf("got token %d, want more than %d", g.Token, last)
		}
	}},
	{"they come after one that is asked for", []Feature{Handover, Fencing}, func(e *env) {
		from, to := e.exclusive(), sparing(e.exclusive(), 15)
		to.MinToken = e.acquire(e.store, from).Token + minute
		g := e.handsOver(from, to)
		if g.Token < to.MinToken {
			e.Errorf("got token %d, want at least %d", g.Token, to.MinToken)
		}
		e.sameToken(e.store, to, g.Token+uint64(g.Spare))
		e.release(e.store, to)
		e.grows(e.other, g.Token+uint64(g.Spare))
	}},
	{"the same claim again has the last of them", []Feature{Handover, Fencing}, func(e *env) {
		to, last := e.spares()
		e.sameToken(e.store, to, last)
		e.extend(e.store, to)
		e.sameToken(e.other, to, last)
	}},
	{"who joins has the last of them", []Feature{Handover, Fencing, Joining}, func(e *env) {
		to, last := e.spares()
		e.sameToken(e.other, joining(e.exclusive(), to), last)
	}},
	{"a further hold of the owner has the last of them", []Feature{Handover, Fencing, Reentry}, func(e *env) {
		to, last := e.spares()
		e.sameToken(e.store, nested(to), last)
		e.sameToken(e.store, to, last)
	}},
}

// spares hands the key over with tokens to spare, and returns who has it and the
// last of them.
func (e *env) spares() (core.Claim, uint64) {
	e.Helper()
	from, to := e.exclusive(), sparing(e.exclusive(), minute)
	e.acquire(e.store, from)
	g := e.handsOver(from, to)
	return to, g.Token + uint64(g.Spare)
}

func sparing(c core.Claim, n int) core.Claim {
	c.Spare = n
	return c
}

func yielding(c core.Claim) core.Claim {
	c.Yield = true
	return c
}

func handover(t testing.TB, s core.Store) core.Handover {
	t.Helper()
	h, ok := s.(core.Handover)
	if !ok {
		t.Fatalf("%T is no core.Handover", s)
	}
	return h
}

func (e *env) handsOver(from, to core.Claim) core.Grant {
	e.Helper()
	g, err := handover(e, e.store).Handover(e.Context(), from, to)
	if err != nil {
		e.Fatalf("handover: got %v, want a grant", err)
	}
	return g
}

func (e *env) noHandover(from, to core.Claim, want error) {
	e.Helper()
	g, err := handover(e, e.store).Handover(e.Context(), from, to)
	if !errors.Is(err, want) {
		e.Fatalf("handover: got grant %+v and error %v, want %v", g, err, want)
	}
}
