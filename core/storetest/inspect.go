package storetest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/lockkit/lockkit/core/store"
)

// lookCases test the state of a key that store.Inspector shows.
var lookCases = []testCase{
	{"look at a free key", []Feature{Inspecting}, func(e *env) {
		e.shows(e.look(e.store))
		e.isFree()
		e.shows(e.look(e.other))
	}},
	{"hold shown in every process", []Feature{Inspecting}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.shows(e.look(e.store), c)
		e.shows(e.look(e.other), c)
		e.extend(e.store, c)
		e.shows(e.look(e.other), c)
	}},
	{"Left grows with an extension", []Feature{Inspecting}, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(20)
		e.acquire(e.store, c)
		first := e.look(e.other).Holds[0].Left
		if first == 0 && e.noTimes() {
			return
		}
		e.sleep(e.units(5))
		second := e.look(e.other).Holds[0].Left
		e.extend(e.store, c)
		third := e.look(e.other).Holds[0].Left
		if first > c.TTL || second > first-e.units(5)+tick || second <= 0 || third <= second || third > c.TTL {
			e.Errorf("%v were left of %v at first, %v after %v, and %v when it was extended", first, c.TTL, second, e.units(5), third)
		}
	}},
	// A store may show no age.
	{"Age counts from the grant", []Feature{Inspecting}, func(e *env) {
		c := e.exclusive()
		before := e.stopwatch()
		e.acquire(e.store, c)
		after := e.stopwatch()
		e.sleep(e.units(5))
		e.extend(e.store, c)
		least := after() - e.h.Unit
		age := e.look(e.other).Holds[0].Age
		if most := before() + e.h.Unit; age != 0 && (age < least || age > most) {
			e.Errorf("it is %v old, want %v to %v", age, least, most)
		}
	}},
	{"released hold is not shown", []Feature{Inspecting}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.release(e.store, c)
		e.shows(e.look(e.store))
	}},
	{"expired hold is not shown", []Feature{Inspecting}, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(1)
		e.acquire(e.store, c)
		e.outlive(c.TTL)
		e.shows(e.look(e.store))
	}},
	{"readers are shown with their weight", []Feature{Inspecting, Shared}, func(e *env) {
		a, b := e.reader(), e.reader()
		e.acquire(e.store, a)
		e.acquire(e.other, b)
		e.shows(e.look(e.store), a, b)
		e.release(e.store, a)
		e.shows(e.look(e.store), b)
	}},
	{"permits are shown with their weight", []Feature{Inspecting, Permits}, func(e *env) {
		a, b := e.permits(2, 5), e.permits(3, 5)
		e.acquire(e.store, a)
		e.acquire(e.other, b)
		e.shows(e.look(e.store), a, b)
	}},
	{"nested holds are shown", []Feature{Inspecting, Reentry}, func(e *env) {
		c := e.exclusive()
		inner := nested(c)
		e.acquire(e.store, c)
		e.acquire(e.store, inner)
		e.shows(e.look(e.other), c, inner)
		e.release(e.store, c)
		e.shows(e.look(e.other), inner)
	}},
	{"kept key shows no ID", []Feature{Inspecting, Keeping}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.release(e.store, keeping(c, e.units(10)))
		e.showsKept(e.look(e.other), store.All)
		e.outlive(e.units(10))
		e.shows(e.look(e.other))
	}},
	{"waiters are shown in their order", []Feature{Inspecting, Fair}, func(e *env) {
		c, first, second := e.exclusive(), e.fair(), e.fair()
		e.acquire(e.store, c)
		e.busy(e.other, first)
		e.busy(e.store, second)
		e.busy(e.other, first)
		s := e.look(e.store)
		e.shows(s, c)
		e.waits(s, first, second)
		e.giveUp(e.other, first)
		e.waits(e.look(e.other), second)
	}},
	{"unfair waiter is shown", []Feature{Inspecting, Watching, Places}, func(e *env) {
		c, w := e.exclusive(), e.waiting()
		e.acquire(e.store, c)
		e.busy(e.other, w)
		e.waits(e.look(e.store), w)
	}},
	{"forgotten waiter is not shown", []Feature{Inspecting, Fair}, func(e *env) {
		c, w := e.exclusive(), e.fair()
		w.TTL = e.units(1)
		e.acquire(e.store, c)
		e.busy(e.other, w)
		e.outlive(w.TTL)
		e.waits(e.look(e.store))
	}},
	{"run shown with its attempt", []Feature{Inspecting, Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.showsRun(e.look(e.other), 1, false)
		e.release(e.store, e.failed(c, "failed", 1))
		c = e.run("again")
		e.begins(e.store, c, "failed", 2)
		s := e.look(e.other)
		e.shows(s, c)
		e.showsRun(s, 2, false)
		c.Record = &store.Record{Value: []byte("answer"), Attempt: 2, Done: true, Retain: e.long}
		e.release(e.store, c)
		s = e.look(e.other)
		e.shows(s)
		e.showsRun(s, 2, true)
	}},
	{"process of holders and waiters", []Feature{Inspecting, Naming, Places}, func(e *env) {
		c, w := e.exclusive(), e.waiting()
		e.acquire(e.store, c)
		e.busy(e.other, w)
		for range 2 {
			s := e.look(e.store)
			e.shows(s, c)
			e.waits(s, w)
			if a, b := s.Holds[0].Process, s.Waiters[0].Process; a == "" || b == "" || a == b {
				e.Errorf("two processes are shown as %q and %q", a, b)
			}
			e.extend(e.store, c)
			e.busy(e.other, w)
		}
	}},
	{"process of a joined hold", []Feature{Inspecting, Naming, Joining}, func(e *env) {
		c := e.exclusive()
		joins := joining(e.exclusive(), c)
		e.acquire(e.store, c)
		e.acquire(e.other, joins)
		e.shows(e.look(e.store), c, joins)
	}},
	// A lease without the form of a Locker's leases shows no process.
	{"lease without a process", []Feature{Inspecting}, func(e *env) {
		base := e.key
		for i, lease := range []string{
			"short", rand.Text(), newLease() + "A", newLease()[1:], strings.ToLower(newLease()),
			newLease()[:33] + "1", newLease()[:33] + "\n", "\n" + newLease()[1:], newLease()[:33] + "\xff", newLease()[:32] + "\\\\",
		} {
			e.key = fmt.Sprintf("%s:%d", base, i)
			c := e.exclusive()
			c.Lease, c.Owner = lease, lease
			if _, err := e.store.Acquire(e.Context(), c); err != nil {
				continue // the store does not accept such leases
			}
			if s := e.look(e.other); len(s.Holds) != 1 || s.Holds[0].Process != "" {
				e.Errorf("a hold of %q is shown as %+v", lease, s.Holds)
			}
		}
	}},
	{"secrets stay hidden", []Feature{Inspecting}, func(e *env) {
		c := e.exclusive()
		secrets := []string{c.Owner, c.Lease[8:16]} // without the letters of the process
		if e.can(Records) {
			c.Record = &store.Record{Value: []byte("a very long value"), Retain: e.long}
			secrets = append(secrets, "a very long value", "YSB2ZXJ5IGxvbmcgdmFsdWU")
		}
		e.acquire(e.store, c)
		w := e.waiting()
		e.busy(e.other, w)
		secrets = append(secrets, w.Owner, w.Lease[8:16])
		s := e.look(e.store)
		if len(s.Holds) != 1 {
			e.Fatalf("look: got %d holds, want 1", len(s.Holds))
		}
		text, err := json.Marshal(s)
		if err != nil {
			e.Fatal(err)
		}
		for _, secret := range secrets {
			if strings.Contains(string(text), secret) {
				e.Errorf("%s shows %q", text, secret)
			}
		}
	}},
	{"unusual keys are shown", []Feature{Inspecting}, func(e *env) {
		for _, key := range hardKeys(e.key) {
			e.key = key
			c := e.exclusive()
			e.acquire(e.store, c)
			e.shows(e.look(e.other), c)
		}
	}},
	{"bad input is refused", []Feature{Inspecting}, func(e *env) {
		in := e.inspector(e.store)
		c := e.exclusive()
		e.acquire(e.store, c)
		id := e.id(c)
		for what, err := range map[string]error{
			"look at no key":         second(in.Look(e.Context(), "")),
			"look at a long key":     second(in.Look(e.Context(), strings.Repeat("k", 513))),
			"a page of none":         third(in.List(e.Context(), "", 0)),
			"a page of too many":     third(in.List(e.Context(), "", store.MostListed+1)),
			"a page after nonsense":  third(in.List(e.Context(), "\x00\xffnonsense", 1)),
			"revoke of no key":       in.Revoke(e.Context(), "", id, 0),
			"revoke of no hold":      in.Revoke(e.Context(), e.key, "", 0),
			"revoke for less than 0": in.Revoke(e.Context(), e.key, id, -1),
			"revoke for too long":    in.Revoke(e.Context(), e.key, id, store.MaxKeep+1),
		} {
			if !errors.Is(err, store.ErrInvalid) {
				e.Errorf("%s: got %v, want %v", what, err, store.ErrInvalid)
			}
		}
		e.extend(e.store, c)
	}},
	{"done context shows and revokes nothing", []Feature{Inspecting}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		in := e.inspector(e.store)
		e.ended(func(ctx context.Context) error { return second(in.Look(ctx, e.key)) })
		e.ended(func(ctx context.Context) error { return third(in.List(ctx, "", 10)) })
		e.ended(func(ctx context.Context) error { return in.Revoke(ctx, e.key, e.id(c), 0) })
		e.extend(e.store, c)
	}},
}

// listCases test the walk of store.Inspector over all keys.
var listCases = []testCase{
	{"list has every key", []Feature{Inspecting}, func(e *env) {
		want := make(map[string]store.Claim)
		base := e.key
		for i := range 23 {
			e.key = fmt.Sprintf("%s:%d", base, i)
			c := e.exclusive()
			want[e.key] = c
			e.acquire(e.store, c)
		}
		e.key = base + ":free"
		e.isFree()
		e.walk(7, func(s store.State) {
			c, ours := want[s.Key]
			switch {
			case ours:
				e.shows(s, c)
				delete(want, s.Key)
			case s.Key == e.key && len(s.Holds) > 0:
				e.Errorf("list: %q, which is free, has %+v", s.Key, s)
			}
		})
		if len(want) > 0 {
			e.Errorf("list: %d keys were on no page", len(want))
		}
	}},
	{"list while keys come and go", []Feature{Inspecting}, func(e *env) {
		stays, base := e.exclusive(), e.key
		e.acquire(e.store, stays)
		seen, n := 0, 0
		var goes store.Claim
		e.walk(1, func(s store.State) {
			if s.Key == base {
				seen++
			}
			if n++; n > 200 {
				return
			}
			if goes.Key != "" {
				e.giveUp(e.other, goes)
			}
			e.key = fmt.Sprintf("%s:%d", base, n%7)
			goes = e.exclusive()
			goes.TTL = e.units(10)
			e.acquire(e.other, goes)
		})
		if seen == 0 {
			e.Error("list: the key that stayed was on no page")
		}
	}},
	{"unusual keys listed and revoked", []Feature{Inspecting}, func(e *env) {
		want := make(map[string]store.Claim)
		for _, key := range hardKeys(e.key) {
			e.key = key
			want[key] = e.exclusive()
			e.acquire(e.store, want[key])
		}
		e.walk(10, func(s store.State) {
			c, ours := want[s.Key]
			if !ours {
				return
			}
			delete(want, s.Key)
			e.shows(s, c)
			e.revoke(e.other, c, 0) // now and not after the walk, which takes long on a busy server
			e.notExtended(e.store, c)
		})
		for key := range want {
			e.Errorf("list: %q was on no page", key)
		}
	}},
	{"stored answer is listed", []Feature{Inspecting, Records}, func(e *env) {
		e.finish("answer")
		found := false
		e.walk(50, func(s store.State) {
			if s.Key == e.key {
				found = true
				e.showsRun(s, 1, true)
			}
		})
		if !found {
			e.Error("list: the key was on no page")
		}
	}},
}

func (e *env) inspector(s store.Store) store.Inspector {
	e.Helper()
	in, ok := s.(store.Inspector)
	if !ok {
		e.Fatalf("%T is no store.Inspector", s)
	}
	return in
}

// noTimes reports whether the store shows no time for the first hold of the key.
func (e *env) noTimes() bool { return e.look(e.store).Holds[0].Left == 0 }

func (e *env) look(s store.Store) store.State {
	e.Helper()
	st, err := e.inspector(s).Look(e.Context(), e.key)
	if err != nil {
		e.Fatalf("look: %v", err)
	}
	if st.Key != e.key {
		e.Fatalf("look: got key %q, want %q", st.Key, e.key)
	}
	return st
}

func (e *env) id(c store.Claim) string {
	return store.HoldID(c.Lease)
}

// shows fails the case unless the holds of s are the holds of the claims in want.
func (e *env) shows(s store.State, want ...store.Claim) {
	e.Helper()
	if len(s.Holds) != len(want) {
		e.Fatalf("the key shows %d holds, want %d: %+v", len(s.Holds), len(want), s)
	}
	for _, c := range want {
		e.showsOne(s.Holds, c)
	}
}

func (e *env) showsOne(some []store.Hold, c store.Claim) {
	e.Helper()
	for _, h := range some {
		if h.ID != e.id(c) {
			continue
		}
		if h.Weight != c.Weight || h.Left < 0 || h.Left > max(c.TTL, e.units(2)) || h.Age < 0 {
			e.Errorf("a claim of %d for %v is shown as %+v", c.Weight, c.TTL, h)
		}
		if h.Process != store.ProcessOf(c.Lease) && e.can(Naming) {
			e.Errorf("a claim of process %s is shown as %+v", store.ProcessOf(c.Lease), h)
		}
		return
	}
	e.Errorf("a claim is not shown: %+v", some)
}

// showsKept fails the case unless s has a single hold of this weight, without an ID and
// a process.
func (e *env) showsKept(s store.State, weight int64) {
	e.Helper()
	if len(s.Holds) != 1 || s.Holds[0].ID != "" || s.Holds[0].Process != "" || s.Holds[0].Weight != weight {
		e.Errorf("what is kept is shown as %+v", s.Holds)
	}
}

// waits fails the case unless the waiters of s are the claims in want, in order.
func (e *env) waits(s store.State, want ...store.Claim) {
	e.Helper()
	if len(s.Waiters) != len(want) {
		e.Fatalf("the key shows %d waiters, want %d: %+v", len(s.Waiters), len(want), s)
	}
	for i, c := range want {
		e.showsOne(s.Waiters[i:i+1], c)
		if fair := s.Waiters[i].Fair; e.can(Overtaking) && fair != c.Fair {
			e.Errorf("a waiter is shown as fair: %v, want %v", fair, c.Fair)
		}
	}
}

func (e *env) showsRun(s store.State, attempt int, done bool) {
	e.Helper()
	if s.Run == nil || s.Run.Attempt != attempt || s.Run.Done != done || s.Run.Left <= 0 || s.Run.Left > 2*e.long {
		e.Errorf("the run is shown as %+v, want attempt %d, done: %v", s.Run, attempt, done)
	}
}

// withoutNaming checks a store that does not know the leases of its holds.
func withoutNaming(e *env) {
	in, ok := e.store.(store.Inspector)
	if !ok {
		return
	}
	c := e.exclusive()
	e.acquire(e.store, c)
	s, err := in.Look(e.Context(), e.key)
	if errors.Is(err, store.ErrUnsupported) {
		return
	}
	if len(s.Holds) != 1 || s.Holds[0].Process != "" {
		e.Errorf("look: got %+v and %v, want a hold without a process", s, err)
	}
}

// walk lists all keys of the store, in pages of about the length most, and calls fn for
// each State.
func (e *env) walk(most int, fn func(s store.State)) {
	e.Helper()
	for after, pages := "", 0; ; pages++ {
		page, next, err := e.inspector(e.store).List(e.Context(), after, most)
		if err != nil {
			e.Fatalf("list: %v", err)
		}
		if len(page) > most+2*store.MostListed {
			e.Fatalf("list: a page of %d, %d were asked for", len(page), most)
		}
		for _, s := range page {
			fn(s)
		}
		if next == "" {
			return
		}
		if pages > 100_000 {
			e.Fatal("list: the walk does not end")
		}
		after = next
	}
}

// ended calls call with a done context, and fails the case unless call fails with
// store.ErrUnavailable.
func (e *env) ended(call func(ctx context.Context) error) {
	e.Helper()
	var err error
	e.soon(func(ctx context.Context) error {
		err = call(ctx)
		return err
	})
	if !errors.Is(err, store.ErrUnavailable) {
		e.Errorf("got %v, want %v", err, store.ErrUnavailable)
	}
}

func second[T any](_ T, err error) error        { return err }
func third[T, U any](_ T, _ U, err error) error { return err }
