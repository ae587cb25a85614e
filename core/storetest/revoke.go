package storetest

import (
	"cmp"
	"errors"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

var revokeCases = []testCase{
	// With a keep of 0 the key is free at once.
	{"revoked hold is lost", []Feature{Inspecting}, func(e *env) {
		c, next := e.exclusive(), e.exclusive()
		e.acquire(e.store, c)
		e.revoke(e.other, c, 0)
		e.notExtended(e.store, c)
		e.acquire(e.other, next)
		e.notExtended(e.store, c)
		e.notReleased(e.store, c)
		e.extend(e.other, next)
		e.shows(e.look(e.store), next)
	}},
	{"release of a revoked hold", []Feature{Inspecting, Keeping}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.revoke(e.other, c, e.long)
		e.notExtended(e.store, c)
		e.notReleased(e.store, c)
		e.isHeld()
		e.showsKept(e.look(e.store), store.All)
	}},
	// The key stays taken for the time that was left of the hold.
	{"revoked key stays taken", []Feature{Inspecting, Keeping}, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(13)
		e.acquire(e.store, c)
		e.sleep(e.units(4))
		passed := e.stopwatch()
		x := e.extension(e.store, c) // changes the time that is left
		if x.Err != nil {
			e.Fatal(x.Err)
		}
		valid := cmp.Or(x.Valid, c.TTL)
		e.revoke(e.other, c, time.Millisecond)
		e.becomesFree(e.other, e.exclusive())
		if at := passed(); at < valid-tick {
			e.Errorf("another owner got in after %v, %v were left of the hold", at, valid)
		}
	}},
	// The key stays taken for keep if keep is longer than the time that was left.
	{"revoked key stays taken for longer", []Feature{Inspecting, Keeping}, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(9)
		e.acquire(e.store, c)
		passed := e.stopwatch()
		e.revoke(e.other, c, e.units(12))
		e.becomesFree(e.other, e.exclusive())
		if at := passed(); at < e.units(12)-tick {
			e.Errorf("another owner got in after %v, the key was to stay taken for %v", at, e.units(12))
		}
	}},
	{"revoke of a released hold", []Feature{Inspecting}, func(e *env) {
		c, next := e.exclusive(), e.exclusive()
		e.acquire(e.store, c)
		e.release(e.store, c)
		for _, keep := range e.keeps() {
			e.notRevoked(e.other, c, keep)
		}
		e.isFree()
		e.acquire(e.store, next)
		for _, keep := range e.keeps() {
			e.notRevoked(e.store, c, keep)
			e.notRevoked(e.other, e.exclusive(), keep)
		}
		e.extend(e.store, next)
		e.shows(e.look(e.other), next)
		e.release(e.store, next)
		e.isFree()
	}},
	{"revoke of an expired hold", []Feature{Inspecting}, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(1)
		e.acquire(e.store, c)
		e.outlive(c.TTL)
		for _, keep := range e.keeps() {
			e.notRevoked(e.other, c, keep)
		}
		e.isFree()
	}},
	{"hold is revoked once", []Feature{Inspecting}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.revoke(e.store, c, e.keeps()[len(e.keeps())-1])
		for _, keep := range e.keeps() {
			e.notRevoked(e.store, c, keep)
			e.notRevoked(e.other, c, keep)
		}
		if e.can(Keeping) {
			e.isHeld()
		}
	}},
	{"one of several concurrent revokes", []Feature{Inspecting, SoleRevoke}, func(e *env) {
		if n := e.revokeAtOnce(); n != 1 {
			e.Errorf("%d calls have revoked the hold, want 1", n)
		}
	}},
	{"revoke of one reader", []Feature{Inspecting, Shared}, func(e *env) {
		a, b := e.reader(), e.reader()
		e.acquire(e.store, a)
		e.acquire(e.other, b)
		e.revoke(e.other, a, 0)
		e.notExtended(e.store, a)
		e.extend(e.other, b)
		e.shows(e.look(e.store), b)
		e.isHeld()
	}},
	{"revoked permit stays taken", []Feature{Inspecting, Permits, Keeping}, func(e *env) {
		a, b := e.permits(2, 3), e.permits(1, 3)
		e.acquire(e.store, a)
		e.acquire(e.other, b)
		e.revoke(e.other, a, time.Millisecond)
		e.sleep(e.units(1))
		e.busy(e.other, e.permits(1, 3))
		e.extend(e.other, b)
	}},
	{"revoke of a nested hold", []Feature{Inspecting, Reentry}, func(e *env) {
		c := e.exclusive()
		inner := nested(c)
		e.acquire(e.store, c)
		e.acquire(e.store, inner)
		e.revoke(e.other, inner, 0)
		e.notExtended(e.store, inner)
		e.extend(e.store, c)
		e.isHeld()
	}},
	{"re-entry after a revoke", []Feature{Inspecting, Keeping, Joining}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.revoke(e.other, c, e.long)
		e.busy(e.store, nested(c))
		e.busy(e.other, joining(e.exclusive(), c))
	}},
	{"revoke of a waiter", []Feature{Inspecting, Fair}, func(e *env) {
		c, first, second := e.exclusive(), e.fair(), e.fair()
		e.acquire(e.store, c)
		e.busy(e.other, first)
		e.busy(e.other, second)
		for _, keep := range e.keeps() {
			e.notRevoked(e.other, first, keep)
		}
		e.waits(e.look(e.store), first, second)
		e.release(e.store, c)
		e.busy(e.other, second)
		e.acquire(e.other, first)
	}},
	{"revoke wakes a waiter", []Feature{Inspecting, Watching}, func(e *env) {
		c, w := e.exclusive(), e.waiting()
		e.acquire(e.store, c)
		e.busy(e.other, w)
		woken := e.watch(e.other, w)
		e.revoke(e.store, c, 0)
		e.wakes(woken)
		e.acquire(e.other, w)
	}},
	{"tokens grow over a revoked hold", []Feature{Inspecting, Fencing}, func(e *env) {
		c := e.exclusive()
		token := e.acquire(e.store, c).Token
		e.revoke(e.other, c, 0)
		e.passes(e.other, e.exclusive(), token)
	}},
	// The answer of a revoked run is not saved after another run has begun.
	{"revoked run is counted", []Feature{Inspecting, Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.revoke(e.other, c, 0)
		next := e.run("again")
		e.begins(e.other, next, "begun", 2)
		e.showsRun(e.look(e.store), 2, false)
		e.notReleased(e.store, e.done(c, "late"))
		next.Record = &store.Record{Value: []byte("answer"), Attempt: 2, Done: true, Retain: e.long}
		e.release(e.other, next)
		e.answered(e.store, e.run("again"), "answer")
	}},
	{"stored answer outlives a revoke", []Feature{Inspecting, Records}, func(e *env) {
		e.finish("answer")
		c := e.exclusive() // a plain claim of the same key
		e.acquire(e.store, c)
		e.revoke(e.other, c, 0)
		e.answered(e.store, e.run("again"), "answer")
	}},
}

// keeps returns the values of keep that the store serves.
func (e *env) keeps() []time.Duration {
	if e.can(Keeping) {
		return []time.Duration{0, e.long}
	}
	return []time.Duration{0}
}

func (e *env) revoke(s store.Store, c store.Claim, keep time.Duration) {
	e.Helper()
	if err := e.inspector(s).Revoke(e.Context(), c.Key, e.id(c), keep); err != nil {
		e.Fatalf("revoke: got %v, want nil", err)
	}
}

func (e *env) notRevoked(s store.Store, c store.Claim, keep time.Duration) {
	e.Helper()
	if err := e.inspector(s).Revoke(e.Context(), c.Key, e.id(c), keep); !errors.Is(err, store.ErrLost) {
		e.Fatalf("revoke: got %v, want %v", err, store.ErrLost)
	}
}

func withoutInspecting(e *env) {
	in, ok := e.store.(store.Inspector)
	if !ok {
		return
	}
	c := e.exclusive()
	e.acquire(e.store, c)
	for what, err := range map[string]error{
		"look":   second(in.Look(e.Context(), e.key)),
		"list":   third(in.List(e.Context(), "", 1)),
		"revoke": in.Revoke(e.Context(), e.key, e.id(c), 0),
	} {
		if !errors.Is(err, store.ErrUnsupported) {
			e.Errorf("%s: got %v, want %v", what, err, store.ErrUnsupported)
		}
	}
	e.extend(e.store, c)
}

// withoutSoleRevoke checks a store of several servers. The servers can receive
// concurrent revokes in different orders.
func withoutSoleRevoke(e *env) {
	if e.can(Inspecting) && e.revokeAtOnce() == 0 {
		e.Error("no call has revoked the hold, want one at least")
	}
}

// revokeAtOnce makes several concurrent revokes of one hold, and returns the number of
// them that returned nil.
func (e *env) revokeAtOnce() (done int) {
	e.Helper()
	c := e.exclusive()
	e.acquire(e.store, c)
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			errs[i] = e.inspector(e.side(i)).Revoke(e.Context(), e.key, e.id(c), 0)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err == nil {
			done++
		} else if !isLost(err) {
			e.Errorf("revoke: got %v, want nil or %v", err, store.ErrLost)
		}
	}
	e.isFree()
	return done
}
