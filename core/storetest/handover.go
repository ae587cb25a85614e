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
