package core_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

// TestLateAnswer checks runs that continue after their lease was released or lost
// (hazard 58).
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	away := func(context.Context, int, func() error) error { return errBroken }
	// evicted begins a run, and closes the run's Locker, which releases the run's
	// lease.
	evicted := func(t *testing.T) (*core.Lease, *scripted, *recorder) {
		t.Helper()
		seen := &recorder{}
		l, store := setup(t, core.WithObserver(seen))
		lease := begin(t, l, "pay:1", 1)
		wantErr(t, l.Close(within(t, time.Second)), errShutdown)
		wantErr(t, context.Cause(lease.Context()), core.ErrClosed)
		return lease, store, seen
	}
	// A run that continues after its Locker was closed saves its answer.
	sim(t, "answer after Close", func(t *testing.T) {
		lease, store, seen := evicted(t)
		before := seen.kinds()
		if err := lease.Finish(t.Context(), finished("receipt", 1)); err != nil {
			t.Fatal(err)
		}
		wantAnswer(t, newLocker(t, store.inner), "pay:1", "receipt")
		if now := seen.kinds(); now != before+", cleaned_up" {
			t.Errorf("the events are %q, were %q before Finish", now, before)
		}
	})
	// After a release, the first Finish saves the answer, and the second returns the
	// result of the first.
	sim(t, "two answers after a release", func(t *testing.T) {
		l, store := setup(t)
		lease := begin(t, l, "pay:1", 1)
		release(t, lease)
		for _, value := range []string{"receipt", "another"} {
			if err := lease.Finish(t.Context(), finished(value, 1)); err != nil {
				t.Fatal(err)
			}
		}
		release(t, lease)
		if n := store.count(opRelease); n != 2 {
			t.Errorf("%d releases were sent, want 2", n)
		}
		wantAnswer(t, l, "pay:1", "receipt")
	})
	// A run whose Locker was closed saves nothing after another run has begun.
	sim(t, "another run after Close", func(t *testing.T) {
		lease, store, _ := evicted(t)
		l := newLocker(t, store.inner)
		next := begin(t, l, "pay:1", 2)
		for range 2 {
			wantErr(t, lease.Finish(t.Context(), finished("late", 1)), core.ErrLost)
		}
		wantHeldLease(t, next)
		release(t, next)
		begin(t, l, "pay:1", 3).Release(t.Context())
	})
	// If a Finish after Close fails, the observer is notified of the failure, and no
	// work is left in the background.
	sim(t, "unsaved answer after Close", func(t *testing.T) {
		for _, f := range []fault{away, hang, loseReply} {
			lease, store, seen := evicted(t)
			store.set(f, opRelease)
			for range 2 {
				wantErr(t, lease.Finish(t.Context(), finished("late", 1)), core.ErrUnavailable)
			}
			if events := seen.all(core.CleanedUp); len(events) != 1 || !errors.Is(events[0].Err, core.ErrUnavailable) {
				t.Errorf("got %+v, want one clean-up with its error", events)
			}
			store.forget()
			time.Sleep(time.Hour)
			if n := store.count(); n != 0 {
				t.Errorf("%d calls were sent after Finish had failed", n)
			}
		}
	})
	// A run whose Locker was closed, and whose work has not begun, can be withdrawn.
	sim(t, "withdrawn after Close", func(t *testing.T) {
		lease, store, _ := evicted(t)
		if err := lease.Withdraw(t.Context()); err != nil {
			wantErr(t, err, core.ErrLost)
		}
		wantErr(t, lease.Finish(t.Context(), finished("late", 1)), core.ErrLost)
		begin(t, newLocker(t, store.inner), "pay:1", 1).Release(t.Context())
	})
	sim(t, "settled twice", func(t *testing.T) {
		l, store := setup(t)
		done := begin(t, l, "pay:1", 1)
		withdrawn := begin(t, l, "pay:2", 1)
		if err := done.Finish(t.Context(), finished("receipt", 1)); err != nil {
			t.Fatal(err)
		}
		if err := withdrawn.Withdraw(t.Context()); err != nil {
			t.Fatal(err)
		}
		store.forget()
		wantErr(t, done.Withdraw(t.Context()), core.ErrLost)
		wantErr(t, withdrawn.Finish(t.Context(), finished("late", 1)), core.ErrLost)
		if n := store.count(); n != 0 {
			t.Errorf("%d calls were sent", n)
		}
		wantAnswer(t, l, "pay:1", "receipt")
		begin(t, l, "pay:2", 1).Release(t.Context())
	})
	// The answer is saved after an outage that was longer than the TTL.
	sim(t, "outage longer than the TTL", func(t *testing.T) {
		l, store := setup(t)
		lease := begin(t, l, "pay:1", 1, core.TTL(time.Second))
		store.setAll(away)
		lossTime(t, lease)
		time.Sleep(1500 * time.Millisecond)
		store.setAll(nil)
		if err := lease.Finish(t.Context(), finished("receipt", 1)); err != nil {
			t.Error(err)
		}
		wantAnswer(t, newLocker(t, store.inner), "pay:1", "receipt")
	})
	// If another run has begun after the loss, the observer is notified that the answer
	// is not saved.
	sim(t, "unsaved answer after a loss", func(t *testing.T) {
		seen := &recorder{}
		l, store := setup(t, core.WithObserver(seen))
		lease := begin(t, l, "pay:1", 1, core.TTL(time.Second))
		store.setAll(away)
		lossTime(t, lease)
		time.Sleep(1500 * time.Millisecond)
		store.setAll(nil)
		next := begin(t, newLocker(t, store.inner), "pay:1", 2)
		wantErr(t, lease.Finish(t.Context(), finished("late", 1)), core.ErrLost)
		if events := seen.all(core.CleanedUp); len(events) != 1 || !errors.Is(events[0].Err, core.ErrLost) || events[0].Name != "pay" {
			t.Errorf("got %+v, want one clean-up with its error", events)
		}
		release(t, next)
	})
	// The save of an answer is retried in the background for more than nine minutes,
	// even if the TTL is shorter.
	sim(t, "saved for ten minutes", func(t *testing.T) {
		l, store := setup(t)
		lease := begin(t, l, "pay:1", 1, core.TTL(time.Second))
		store.setAll(away)
		wantErr(t, lease.Finish(t.Context(), finished("receipt", 1)), core.ErrUnavailable)
		time.Sleep(9 * time.Minute)
		store.setAll(nil)
		time.Sleep(5 * time.Second)
		wantAnswer(t, l, "pay:1", "receipt")
	})
}
