package storetest

import "github.com/lockkit/lockkit/core"

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
