package core_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

// TestExtend covers hazard 15 of PROOF.md.
func TestExtend(t *testing.T) {
	t.Parallel()
	// Extend makes a lease last longer than its TTL, and the watchdog continues to
	// extend the lease.
	sim(t, "beyond the TTL", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		if err := lease.Extend(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		if d := time.Until(lease.Deadline()); d != core.Trust(time.Hour) {
			t.Errorf("trusted for %v, want %v", d, core.Trust(time.Hour))
		}
		store.forget()
		for range 30 {
			time.Sleep(6 * time.Minute)
			wantHeldLease(t, lease)
		}
		if n := store.count(opExtend); n > 1300 {
			t.Errorf("%d extensions in three hours, want one in ten seconds", n)
		}
		release(t, lease)
	})
	sim(t, "never shortens", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		before := lease.Deadline()
		if err := lease.Extend(t.Context(), 100*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if got := lease.Deadline(); !got.Equal(before) {
			t.Errorf("the deadline moved by %v", got.Sub(before))
		}
		time.Sleep(5 * time.Second)
		wantHeldLease(t, lease)
		wantHeld(t, store.inner, "order:1")
		release(t, lease)
	})
	// Concurrent extensions by Extend and by the watchdog do not harm the lease.
	t.Run("beside the watchdog", func(t *testing.T) {
		t.Parallel()
		// The test runs in real time, so that Extend and the watchdog run concurrently.
		l := newLocker(t, memStore())
		start := time.Now()
		lease := acquire(t, t.Context(), l, "order:1", core.TTL(3*time.Second))
		for time.Since(start) < 1200*time.Millisecond {
			if err := lease.Extend(t.Context(), 3*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		release(t, lease)
	})
	sim(t, "errors of Extend", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		store.forget()
		for _, ttl := range []time.Duration{0, -1, 10 * time.Millisecond, 25 * 24 * time.Hour} {
			wantErr(t, lease.Extend(t.Context(), ttl), core.ErrInvalid)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, lease.Extend(ctx, time.Minute), core.ErrUnavailable, context.Canceled)
		if n := store.count(); n != 0 {
			t.Errorf("%d calls were sent, want none", n)
		}
		for _, f := range []fault{loseRequest, loseReply, refuse, hang} {
			store.set(f, opExtend)
			before := lease.Deadline()
			wantErr(t, lease.Extend(t.Context(), 2*time.Second), core.ErrUnavailable)
			if lease.Deadline().After(before) {
				t.Error("an extension that was not confirmed moved the deadline")
			}
			wantHeldLease(t, lease)
		}
		store.set(nil, opExtend)
		release(t, lease)
		wantErr(t, lease.Extend(t.Context(), time.Minute), core.ErrLost)
	})
	// If ctx is done because another lease was lost, Extend fails and this lease is not
	// lost.
	sim(t, "context of another lost lease", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		store.set(hang, opExtend)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(core.ErrLost) })
		wantErr(t, lease.Extend(ctx, time.Minute), core.ErrUnavailable, context.Canceled)
		store.set(nil, opExtend)
		wantHeldLease(t, lease)
		release(t, lease)
	})
	// A loss cancels the lease's own context. Extend under that context nevertheless
	// reports the loss.
	sim(t, "own context at a loss", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		store.set(func(context.Context, int, func() error) error { return core.ErrLost }, opExtend)
		for range 2 {
			err := lease.Extend(lease.Context(), time.Minute)
			wantErr(t, err, core.ErrLost)
			wantNot(t, err, core.ErrUnavailable)
		}
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
	})
	sim(t, "own context after Release", func(t *testing.T) {
		l, _ := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		release(t, lease)
		err := lease.Extend(lease.Context(), time.Minute)
		wantErr(t, err, core.ErrLost)
		wantNot(t, err, core.ErrUnavailable)
	})
	// A missing answer does not confirm an extension.
	sim(t, "missing answer", func(t *testing.T) {
		store := newScripted(&mute{memStore()})
		l := newLocker(t, store)
		lease := acquire(t, t.Context(), l, "order:1", core.TTL(time.Second))
		wantErr(t, lease.Extend(t.Context(), time.Minute), core.ErrUnavailable)
		lossTime(t, lease)
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
	})
}

// mute is a store that returns no answers to extensions.
type mute struct{ core.Store }

func (*mute) Extend(context.Context, []store.Claim) []store.Extension { return nil }
