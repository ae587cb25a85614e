package core_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
)

// vanish deletes the hold of a lease at the store, as an operator can.
func vanish(t *testing.T, store *scripted, lease *core.Lease) {
	t.Helper()
	for _, c := range store.sent(opAcquire) {
		owner, _, _ := strings.Cut(lease.Owner(), ".") // the text also has the token
		if c.claims[0].Owner == owner && c.claims[0].Key == lease.Key() {
			if err := store.inner.Release(t.Context(), c.claims[0]); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("no such hold")
}

// TestReentry covers hazard 12 of PROOF.md.
func TestReentry(t *testing.T) {
	t.Parallel()
	// Under a lease, the same key can be acquired again at once. The key is free when
	// both leases are released.
	sim(t, "acquired again", func(t *testing.T) {
		for _, outerFirst := range []bool{true, false} {
			l, store := setup(t)
			outer := acquire(t, t.Context(), l, "order:1")
			start := time.Now()
			inner := acquire(t, outer.Context(), l, "order:1")
			if time.Since(start) != 0 {
				t.Errorf("got it after %v", time.Since(start))
			}
			if inner.Owner() != outer.Owner() || inner.Token() != outer.Token() || inner.Token() == 0 {
				t.Errorf("owner or token differ: tokens %d and %d", outer.Token(), inner.Token())
			}
			a, b := inner, outer
			if outerFirst {
				a, b = outer, inner
			}
			release(t, a)
			time.Sleep(time.Hour)
			wantHeld(t, store.inner, "order:1")
			if outerFirst && context.Cause(inner.Context()) != context.Canceled {
				t.Error("the inner context does not end with the outer one")
			}
			release(t, b)
			wantFree(t, store.inner, "order:1")
		}
	})
	for name, f := range map[string]fault{"lost": loseReply, "hanging": hangAfter} {
		sim(t, "three deep "+name+" replies", func(t *testing.T) {
			l, store := setup(t)
			ctx := t.Context()
			var leases []*core.Lease
			for range 3 {
				store.set(first(1, f), opAcquire)
				lease := acquire(t, ctx, l, "order:1")
				leases, ctx = append(leases, lease), lease.Context()
			}
			store.set(nil, opAcquire)
			for i := range leases {
				wantHeld(t, store.inner, "order:1")
				release(t, leases[len(leases)-1-i])
			}
			wantFree(t, store.inner, "order:1")
		})
	}
	// A store can release an unanswered claim by itself, and then answers ErrLost. The
	// outer lease is still held, so nothing is lost.
	sim(t, "released by the store", func(t *testing.T) {
		for _, byText := range []bool{false, true} {
			l, store := setup(t)
			outer := acquire(t, t.Context(), l, "order:1")
			ctx := outer.Context()
			if byText {
				ctx = core.ContextWithOwner(t.Context(), outer.Owner())
			}
			store.set(func(_ context.Context, n int, _ func() error) error {
				if n == 1 {
					return errBroken
				}
				return core.ErrLost
			}, opAcquire)
			_, err := l.Acquire(ctx, "order:1")
			wantErr(t, err, core.ErrUnavailable)
			wantNot(t, err, core.ErrLost)
			store.set(nil, opAcquire)
			wantHeldLease(t, outer)
			release(t, outer)
		}
	})
	// An acquire that re-enters overtakes the waiters of this process, and fair waiters
	// of other processes.
	sim(t, "overtakes waiters", func(t *testing.T) {
		l, store := setup(t)
		other := newLocker(t, store.inner)
		outer := acquire(t, t.Context(), l, "order:1")
		var wg sync.WaitGroup
		for _, l := range []*core.Locker{l, other} {
			for range 2 {
				wg.Go(func() {
					if err := l.Do(t.Context(), "order:1", func(context.Context) error { return nil }, core.Fair()); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
		}
		start := time.Now()
		inner, err := l.TryAcquire(outer.Context(), "order:1", core.Fair())
		if err != nil || time.Since(start) != 0 {
			t.Fatalf("got %v after %v", err, time.Since(start))
		}
		release(t, inner)
		release(t, outer)
		wg.Wait()
	})
	// Goroutines under one lease share the lease's key, and exclude each other from
	// another key.
	sim(t, "two goroutines under one lease", func(t *testing.T) {
		l, _ := setup(t)
		outer := acquire(t, t.Context(), l, "order:1")
		var inside, shared, most atomic.Int32
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				err := l.Do(outer.Context(), "order:1", func(ctx context.Context) error {
					raise(&most, shared.Add(1))
					defer shared.Add(-1)
					return l.Do(ctx, "account:9", func(context.Context) error {
						if inside.Add(1) != 1 {
							t.Error("two have account:9")
						}
						time.Sleep(10 * time.Millisecond)
						inside.Add(-1)
						return nil
					})
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if most.Load() != 8 {
			t.Errorf("%d were in order:1 at once, want all 8", most.Load())
		}
		release(t, outer)
	})
	// The lease of another key, acquired under a lease, has a different owner.
	sim(t, "another key", func(t *testing.T) {
		l, _ := setup(t)
		outer := acquire(t, t.Context(), l, "order:1")
		other := acquire(t, outer.Context(), l, "order:2")
		if other.Owner() == outer.Owner() {
			t.Error("both have the same owner")
		}
		release(t, other)
		release(t, outer)
	})
	// A claim that is heavier than the outer lease is refused, and nothing changes.
	sim(t, "heavier claim", func(t *testing.T) {
		l, store := setup(t)
		outer := acquire(t, t.Context(), l, "order:1", core.Shared())
		_, err := l.Acquire(outer.Context(), "order:1")
		wantErr(t, err, core.ErrInvalid)
		wantNot(t, err, core.ErrBusy, core.ErrLost)
		wantHeldLease(t, outer)
		release(t, outer)
		wantFree(t, store.inner, "order:1")
	})
	// A reader inside an exclusive lease has no token, and the key stays exclusive.
	sim(t, "reader inside an exclusive lease", func(t *testing.T) {
		l, _ := setup(t)
		outer := acquire(t, t.Context(), l, "order:1")
		inner := acquire(t, outer.Context(), l, "order:1", core.Shared())
		if inner.Token() != 0 {
			t.Errorf("the reader has token %d", inner.Token())
		}
		_, err := l.TryAcquire(t.Context(), "order:1", core.Shared())
		wantErr(t, err, core.ErrBusy)
		release(t, inner)
		release(t, outer)
	})
	sim(t, "permits of the outer", func(t *testing.T) {
		l, _ := setup(t)
		outer := acquire(t, t.Context(), l, "pool", core.Permits(2, 3))
		inner := acquire(t, outer.Context(), l, "pool", core.Permits(1, 3))
		if inner.Owner() == outer.Owner() {
			t.Error("both have the same owner")
		}
		_, err := l.TryAcquire(inner.Context(), "pool", core.Permits(1, 3))
		wantErr(t, err, core.ErrBusy)
		release(t, inner)
		release(t, outer)
	})
}

// TestReentryAfterLoss covers hazard 16 of PROOF.md.
func TestReentryAfterLoss(t *testing.T) {
	t.Parallel()
	// If the loss is known in this process, a nested acquire is refused, and nothing is
	// sent.
	sim(t, "loss known here", func(t *testing.T) {
		l, store := setup(t)
		outer := acquire(t, t.Context(), l, "order:1")
		store.set(hang, opExtend)
		lossTime(t, outer)
		store.forget()
		for _, ctx := range []context.Context{outer.Context(), context.WithoutCancel(outer.Context())} {
			_, err := l.Acquire(ctx, "order:1")
			wantErr(t, err, core.ErrLost)
		}
		if n := store.count(opAcquire, opRelease); n != 0 {
			t.Errorf("%d calls were sent, want none", n)
		}
		wantErr(t, outer.Release(t.Context()), core.ErrLost)
	})
	for name, taken := range map[string]bool{"free": false, "taken": true} {
		sim(t, "loss known to the store "+name, func(t *testing.T) {
			l, store := setup(t)
			outer := acquire(t, t.Context(), l, "order:1")
			vanish(t, store, outer)
			var rival *core.Lease
			if taken {
				rival = acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
			}
			_, err := l.Acquire(outer.Context(), "order:1")
			wantErr(t, err, core.ErrLost)
			wantNot(t, err, core.ErrBusy)
			wantLost(t, outer)
			if taken {
				wantHeldLease(t, rival)
				release(t, rival)
			}
			wantFree(t, store.inner, "order:1")
			wantErr(t, outer.Release(t.Context()), core.ErrLost)
		})
	}
	// A nested acquire under a context that is done does not lose the outer lease.
	sim(t, "done context", func(t *testing.T) {
		for _, cause := range []error{nil, core.ErrLost, &core.BusyError{}} {
			l, store := setup(t)
			outer := acquire(t, t.Context(), l, "order:1")
			ctx, cancel := context.WithCancelCause(outer.Context())
			cancel(cause)
			_, err := l.Acquire(ctx, "order:1")
			wantErr(t, err, context.Canceled)
			wantHeldLease(t, outer)

			store.set(hangAfter, opAcquire) // next: a context that becomes done during the call
			ctx, cancel = context.WithCancelCause(outer.Context())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			_, err = l.Acquire(ctx, "order:1")
			wantErr(t, err, core.ErrUnavailable, context.Canceled)
			wantHeldLease(t, outer)
			time.Sleep(time.Second)
			wantHeld(t, store.inner, "order:1")
			release(t, outer)
			wantFree(t, store.inner, "order:1")
		}
	})
	// A nested acquire that fails does not lose the outer lease.
	sim(t, "failing store", func(t *testing.T) {
		l, store := setup(t)
		outer := acquire(t, t.Context(), l, "order:1")
		for _, f := range []fault{loseRequest, loseReply, refuse, hang} {
			store.set(f, opAcquire)
			_, err := l.Acquire(outer.Context(), "order:1")
			wantErr(t, err, core.ErrUnavailable)
			wantHeldLease(t, outer)
		}
		release(t, outer)
		time.Sleep(time.Second)
		wantFree(t, store.inner, "order:1")
	})
	// Under a released lease, its key is acquired like any other key.
	sim(t, "released lease", func(t *testing.T) {
		l, store := setup(t)
		outer := acquire(t, t.Context(), l, "order:1")
		ctx := context.WithoutCancel(outer.Context())
		release(t, outer)
		again := acquire(t, ctx, l, "order:1")
		if again.Owner() == outer.Owner() || again.Token() <= outer.Token() {
			t.Error("it re-entered a released lease")
		}
		_, err := newLocker(t, store.inner).TryAcquire(ctx, "order:1")
		wantErr(t, err, core.ErrBusy)
		release(t, again)
	})
	// An acquire under a released inner lease joins the outer lease, which still holds
	// the key.
	sim(t, "outermost holder", func(t *testing.T) {
		l, _ := setup(t)
		a := acquire(t, t.Context(), l, "order:1")
		b := acquire(t, a.Context(), l, "order:1")
		ctx := context.WithoutCancel(b.Context())
		release(t, b)
		c := acquire(t, ctx, l, "order:1")
		if c.Owner() != a.Owner() {
			t.Error("it did not join the outer lease")
		}
		release(t, c)
		release(t, a)
	})
	// The key stays held while hundreds of nested leases are acquired and released.
	sim(t, "hundreds come and go", func(t *testing.T) {
		l, store := setup(t)
		store.setAll(jitter(time.Millisecond))
		outer := acquire(t, t.Context(), l, "order:1", core.TTL(time.Second))
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				time.Sleep(time.Duration(i%17) * 100 * time.Millisecond)
				if err := l.Do(outer.Context(), "order:1", func(context.Context) error {
					time.Sleep(time.Duration(i%5) * time.Second)
					return nil
				}, core.TTL(time.Second)); err != nil {
					t.Error(fmt.Errorf("nested %d: %w", i, err))
				}
			})
		}
		wg.Wait()
		wantHeldLease(t, outer)
		release(t, outer)
		wantFree(t, store.inner, "order:1")
	})
}
