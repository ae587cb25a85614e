package core_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

// TestLateAnswer is about runs whose lease had ended before they did (hazard 58).
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	away := func(context.Context, int, func() error) error { return errBroken }
	// evicted begins a run, and closes its Locker while it goes on.
	evicted := func(t *testing.T) (*core.Lease, *scripted, *recorder) {
		t.Helper()
		seen := &recorder{}
		l, store := setup(t, core.WithObserver(seen))
		lease := begin(t, l, "pay:1", 1)
		wantErr(t, l.Close(within(t, time.Second)), errShutdown)
		wantErr(t, context.Cause(lease.Context()), core.ErrClosed)
		return lease, store, seen
	}
	sim(t, "a run that goes on after its Locker was closed saves its answer", func(t *testing.T) {
		lease, store, seen := evicted(t)
		told := seen.kinds()
		if err := lease.Finish(t.Context(), finished("receipt", 1)); err != nil {
			t.Fatal(err)
		}
		wantAnswer(t, newLocker(t, store.inner), "pay:1", "receipt")
		if now := seen.kinds(); now != told+", cleaned_up" {
			t.Errorf("the events are %q, were %q before Finish", now, told)
		}
	})
	sim(t, "the answer of a run that was released is saved by the first Finish, and the second tells what that did", func(t *testing.T) {
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
	sim(t, "a run that was closed saves nothing once another has begun", func(t *testing.T) {
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
	sim(t, "a run that was closed tells that its answer is not saved, and leaves nothing in the background", func(t *testing.T) {
		for _, f := range []fault{away, hang, loseReply} {
			lease, store, seen := evicted(t)
			store.set(f, opRelease)
			for range 2 {
				wantErr(t, lease.Finish(t.Context(), finished("late", 1)), core.ErrUnavailable)
			}
			if told := seen.all(core.CleanedUp); len(told) != 1 || !errors.Is(told[0].Err, core.ErrUnavailable) {
				t.Errorf("told of %+v, want one clean-up with its error", told)
			}
			store.forget()
			time.Sleep(time.Hour)
			if n := store.count(); n != 0 {
				t.Errorf("%d calls were sent after Finish had failed", n)
			}
		}
	})
	sim(t, "a run that was closed and has not begun its work can be withdrawn", func(t *testing.T) {
		lease, store, _ := evicted(t)
		if err := lease.Withdraw(t.Context()); err != nil {
			wantErr(t, err, core.ErrLost)
		}
		wantErr(t, lease.Finish(t.Context(), finished("late", 1)), core.ErrLost)
		begin(t, newLocker(t, store.inner), "pay:1", 1).Release(t.Context())
	})
	sim(t, "a run that was finished or withdrawn is not settled again", func(t *testing.T) {
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
	sim(t, "an answer is saved after the store was away for longer than the TTL", func(t *testing.T) {
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
	sim(t, "a run that lost its lease tells that its answer is not saved once another has begun", func(t *testing.T) {
		seen := &recorder{}
		l, store := setup(t, core.WithObserver(seen))
		lease := begin(t, l, "pay:1", 1, core.TTL(time.Second))
		store.setAll(away)
		lossTime(t, lease)
		time.Sleep(1500 * time.Millisecond)
		store.setAll(nil)
		next := begin(t, newLocker(t, store.inner), "pay:1", 2)
		wantErr(t, lease.Finish(t.Context(), finished("late", 1)), core.ErrLost)
		if told := seen.all(core.CleanedUp); len(told) != 1 || !errors.Is(told[0].Err, core.ErrLost) || told[0].Name != "pay" {
			t.Errorf("told of %+v, want one clean-up with its error", told)
		}
		release(t, next)
	})
	sim(t, "an answer is saved in the background for ten minutes, however short the TTL", func(t *testing.T) {
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
