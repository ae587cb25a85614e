package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
)

func TestPassedOnAndJoined(t *testing.T) {
	t.Parallel()
	// A hold is not passed on if another caller may know its owner. Each function makes
	// the owner known, and returns a function that releases a lease which has joined
	// the hold.
	sim(t, "owner may be known", func(t *testing.T) {
		for name, show := range map[string]func(l *core.Locker, lease *core.Lease) func(){
			"Owner": func(_ *core.Locker, lease *core.Lease) func() {
				lease.Owner()
				return func() {}
			},
			"a nested lease": func(l *core.Locker, lease *core.Lease) func() {
				inner, err := l.Acquire(lease.Context(), "order:1")
				if err != nil {
					t.Errorf("nested: %v", err)
					return func() {}
				}
				if inner.Token() != lease.Token() {
					t.Errorf("the nested lease has token %d, want %d", inner.Token(), lease.Token())
				}
				return func() { release(t, inner) }
			},
		} {
			l, store := setup(t)
			first, x := row(t, l, store, 2)
			done := let(first)
			lease := x.take(1)
			wantErr(t, <-done, nil)
			end := show(l, lease)
			done = let(lease)
			time.Sleep(time.Second)
			if name != "Owner" && x.has(2) {
				t.Errorf("%s: the next one has the key", name)
			}
			end()
			last := x.take(2)
			wantErr(t, <-done, nil)
			if store.count(opRelease) < 1 {
				t.Errorf("%s: the hold was passed on", name)
			}
			release(t, last)
			wantFree(t, store.inner, "order:1")
		}
	})
	// The owner or the context of a released lease does not let a caller join the hold
	// of the next lease.
	sim(t, "owner of a released lease", func(t *testing.T) {
		l, store := setup(t)
		other := newLocker(t, store.inner)
		lease, x := row(t, l, store, 3)
		for n := 1; n <= 3; n++ {
			wantErr(t, <-let(lease), nil)
			next := x.take(n)
			ctx := core.ContextWithOwner(t.Context(), lease.Owner())
			_, err := other.TryAcquire(ctx, "order:1")
			wantErr(t, err, core.ErrBusy)
			_, err = l.TryAcquire(lease.Context(), "order:1")
			wantErr(t, err, context.Canceled)
			lease = next
		}
		release(t, lease)
	})
	// A lease that joins has the token and the owner of the lease that it joins, in
	// this process and in others.
	sim(t, "token of a join", func(t *testing.T) {
		l, store := setup(t)
		other, third := newLocker(t, store.inner), newLocker(t, store.inner)
		first, x := row(t, l, store, 2)
		done := let(first)
		lease := x.take(1)
		joined := acquire(t, core.ContextWithOwner(t.Context(), lease.Owner()), other, "order:1")
		again := acquire(t, core.ContextWithOwner(t.Context(), joined.Owner()), third, "order:1")
		inner := acquire(t, lease.Context(), l, "order:1")
		foreign := acquire(t, lease.Context(), third, "order:1")
		for name, one := range map[string]*core.Lease{"another process": joined, "one with its owner": again, "a nested one": inner, "another Locker": foreign} {
			if one.Token() != lease.Token() || one.Owner() != lease.Owner() {
				t.Errorf("%s has token %d of %q, want %d of %q", name, one.Token(), one.Owner(), lease.Token(), lease.Owner())
			}
		}
		wantErr(t, <-done, nil)
		release(t, lease)
		for _, one := range []*core.Lease{again, inner, foreign} {
			release(t, one)
		}
		time.Sleep(time.Minute)
		if x.has(2) {
			t.Error("got a key that was free while it was held")
		}
		token := joined.Token()
		release(t, joined)
		last := x.take(2)
		if last.Token() <= token {
			t.Errorf("token %d came after %d", last.Token(), token)
		}
		release(t, last)
	})
	// A caller that joins by an Owner that was read during a release never shares the
	// key with the next lease.
	sim(t, "Owner during a release", func(t *testing.T) {
		l, store := setup(t)
		other := newLocker(t, store.inner)
		in := 0
		for range tally.AllTrials(2000) {
			store.forget()
			lease, x := row(t, l, store, 1)
			owner := make(chan string, 1)
			show := func() { owner <- lease.Owner() }
			var done <-chan error
			if rand.N(2) == 0 {
				go show()
				runtime.Gosched()
				done = let(lease)
			} else {
				done = let(lease)
				runtime.Gosched()
				go show()
			}
			if joined, err := other.TryAcquire(core.ContextWithOwner(t.Context(), <-owner), "order:1"); err == nil {
				in++
				time.Sleep(time.Second)
				if x.has(1) {
					t.Fatal("the next lease has the key together with a join")
				}
				release(t, joined)
			}
			next := x.take(1)
			wantErr(t, <-done, nil)
			release(t, next)
			time.Sleep(time.Minute)
		}
		fmt.Fprintln(t.Output(), in, "joined in time")
	})
}
