package core_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

// TestUnbegunRun checks runs that the store has begun and no caller got. They do not
// count as attempts (hazards 8 and 9).
func TestUnbegunRun(t *testing.T) {
	t.Parallel()
	beginFails := func(t *testing.T, ctx context.Context, l *core.Locker, key string, want ...error) {
		t.Helper()
		lease, _, err := l.Begin(ctx, key, begun())
		if lease != nil {
			t.Fatal("Begin gave a lease")
		}
		wantErr(t, err, want...)
	}
	// failedOnce makes a run fail, so that the store has the record of a failed run.
	failedOnce := func(t *testing.T, l *core.Locker, key string) {
		t.Helper()
		failed := store.Record{Value: []byte("failed"), Attempt: 1, Retain: time.Hour}
		if err := begin(t, l, key, 1).Finish(t.Context(), failed); err != nil {
			t.Fatal(err)
		}
	}
	// wantNext fails the test unless the next run has this attempt and value. It
	// withdraws that run.
	wantNext := func(t *testing.T, l *core.Locker, key, value string, attempt int) {
		t.Helper()
		lease, r, err := l.Begin(t.Context(), key, store.Record{Value: []byte("next"), Retain: time.Hour}, core.Wait(0))
		if err != nil || r.Attempt != attempt || string(r.Value) != value {
			t.Fatalf("Begin gave %+v and %v, want attempt %d with %q", r, err, attempt, value)
		}
		if err := lease.Withdraw(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for name, f := range map[string]fault{
		"error": loseReply, "hanging call": hangAfter, "late requests": late(7 * time.Second),
	} {
		sim(t, "failed begin "+name, func(t *testing.T) {
			l, store := setup(t)
			failedOnce(t, l, "pay:2")
			store.set(f, opAcquire)
			for _, key := range []string{"pay:1", "pay:2"} {
				beginFails(t, t.Context(), l, key, core.ErrUnavailable)
			}
			store.set(nil, opAcquire)
			time.Sleep(20 * time.Second)
			wantNext(t, l, "pay:1", "next", 1)
			wantNext(t, l, "pay:2", "failed", 2)
		})
		sim(t, "canceled begin "+name, func(t *testing.T) {
			l, store := setup(t)
			failedOnce(t, l, "pay:2")
			store.set(f, opAcquire)
			for _, key := range []string{"pay:1", "pay:2"} {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				beginFails(t, ctx, l, key, core.ErrUnavailable, context.DeadlineExceeded)
				cancel()
			}
			store.set(nil, opAcquire)
			time.Sleep(20 * time.Second)
			wantNext(t, l, "pay:1", "next", 1)
			wantNext(t, l, "pay:2", "failed", 2)
		})
	}
	// A failed Begin does not count as an attempt, even if the store answers only after
	// the hold has expired.
	sim(t, "store answers after the expiry", func(t *testing.T) {
		for _, outage := range []time.Duration{45 * time.Second, 9 * time.Minute} {
			seen := &recorder{}
			l, store := setup(t, core.WithObserver(seen))
			failedOnce(t, l, "pay:2")
			store.set(hangAfter, opAcquire)
			store.set(hang, opRelease)
			for _, key := range []string{"pay:1", "pay:2"} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				beginFails(t, ctx, l, key, core.ErrUnavailable)
				cancel()
			}
			time.Sleep(outage)
			// The holds have expired, and the records still exist.
			wantFree(t, store.inner, "pay:1", "pay:2")
			store.setAll(nil)
			time.Sleep(5 * time.Second)
			wantNext(t, l, "pay:1", "next", 1)
			wantNext(t, l, "pay:2", "failed", 2)
			if events := seen.all(core.CleanedUp); len(events) != 2 || events[0].Err != nil || events[1].Err != nil {
				t.Errorf("after %v: got clean-ups %+v, want two without error", outage, events)
			}
		}
	})
	// If another process has begun a run before the undo of a failed Begin, that run is
	// not undone.
	sim(t, "another process has begun", func(t *testing.T) {
		l, store := setup(t)
		store.set(hangAfter, opAcquire)
		store.set(hang, opRelease)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		beginFails(t, ctx, l, "pay:1", core.ErrUnavailable)
		cancel()
		time.Sleep(45 * time.Second)
		next := begin(t, newLocker(t, store.inner), "pay:1", 2)
		store.setAll(nil)
		time.Sleep(5 * time.Second)
		release(t, next)
		begin(t, l, "pay:1", 3).Release(t.Context())
	})
	// A begin that is sent again after its hold has expired counts as one attempt.
	sim(t, "asked again after the expiry", func(t *testing.T) {
		l, store := setup(t)
		store.set(first(1, func(_ context.Context, _ int, do func() error) error {
			do()
			time.Sleep(time.Second)
			return errBroken
		}), opAcquire)
		lease := begin(t, l, "pay:1", 1, core.TTL(200*time.Millisecond))
		if err := lease.Finish(t.Context(), finished("receipt", 1)); err != nil {
			t.Fatal(err)
		}
		wantAnswer(t, l, "pay:1", "receipt")
	})
	// A run that is granted during Close does not count as an attempt.
	sim(t, "granted during Close", func(t *testing.T) {
		for name, reply := range map[string]fault{"in time": slow(0, time.Second), "reply lost": loseReply} {
			store := newScripted(memStore())
			l, err := core.New(store)
			if err != nil {
				t.Fatal(err)
			}
			store.set(reply, opAcquire)
			done := make(chan error, 1)
			go func() {
				_, _, err := l.Begin(t.Context(), "pay:1", begun())
				done <- err
			}()
			synctest.Wait()
			if err := l.Close(t.Context()); err != nil {
				t.Errorf("%s: Close: %v", name, err)
			}
			wantErr(t, <-done, core.ErrClosed)
			wantNext(t, newLocker(t, store.inner), "pay:1", "next", 1)
		}
	})
	// A run that a caller got counts as an attempt, even if its release fails.
	sim(t, "run of a caller counts", func(t *testing.T) {
		for name, f := range map[string]fault{"nothing": nil, "a lost reply": first(1, loseReply), "a lost request": loseRequest, "silence": hang} {
			l, store := setup(t)
			lease := begin(t, l, "pay:1", 1)
			store.set(f, opRelease)
			if err := lease.Release(t.Context()); err != nil && !errors.Is(err, core.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
			store.set(nil, opRelease)
			time.Sleep(10 * time.Second)
			wantNext(t, l, "pay:1", "begun", 2)
		}
		l, store := setup(t)
		lost := begin(t, l, "pay:1", 1, core.NoRenew(), core.TTL(time.Second))
		lossTime(t, lost)
		wantErr(t, lost.Release(t.Context()), core.ErrLost)
		time.Sleep(time.Second)
		wantNext(t, l, "pay:1", "begun", 2)

		evicted, err := core.New(store.inner)
		if err != nil {
			t.Fatal(err)
		}
		begin(t, evicted, "pay:2", 1)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, evicted.Close(ended), context.Canceled)
		wantNext(t, l, "pay:2", "begun", 2)
	})
}

func TestWithdraw(t *testing.T) {
	t.Parallel()
	// A withdrawn run does not count as an attempt, and its key is free.
	sim(t, "no attempt", func(t *testing.T) {
		l, store := setup(t)
		for range 3 {
			lease := begin(t, l, "pay:1", 1)
			before := store.count()
			if err := lease.Withdraw(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := store.count() - before; n != 1 {
				t.Errorf("it cost %d calls, want 1", n)
			}
			if cause := context.Cause(lease.Context()); !errors.Is(cause, context.Canceled) {
				t.Errorf("got cause %v", cause)
			}
			for _, err := range []error{lease.Withdraw(t.Context()), lease.Release(t.Context())} {
				if err != nil {
					t.Errorf("a second call gave %v, want the answer of the first", err)
				}
			}
			wantErr(t, lease.Finish(t.Context(), finished("late", 1)), core.ErrLost)
			wantFree(t, store.inner, "pay:1")
		}
		if err := begin(t, l, "pay:1", 1).Finish(t.Context(), finished("receipt", 1)); err != nil {
			t.Fatal(err)
		}
	})
	// Withdraw works with a canceled ctx, and if the store does not confirm the first
	// call.
	sim(t, "canceled context and lost replies", func(t *testing.T) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for name, f := range map[string]fault{"nothing": nil, "a lost reply": first(1, loseReply), "a hanging reply": first(1, hangAfter)} {
			l, store := setup(t)
			lease := begin(t, l, "pay:1", 1)
			store.set(f, opRelease)
			if err := lease.Withdraw(ended); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			store.set(nil, opRelease)
			begin(t, l, "pay:1", 1).Release(t.Context())
			time.Sleep(10 * time.Second)
			begin(t, l, "pay:1", 2).Release(t.Context())
		}
	})
	// In an outage Withdraw fails, and the run is undone after the outage.
	sim(t, "store cut off", func(t *testing.T) {
		for _, f := range []fault{loseRequest, hang, refuse} {
			l, store := setup(t)
			lease := begin(t, l, "pay:1", 1, core.TTL(time.Second))
			store.set(f, opRelease)
			wantErr(t, lease.Withdraw(t.Context()), core.ErrUnavailable)
			time.Sleep(2 * time.Minute)
			store.set(nil, opRelease)
			time.Sleep(5 * time.Second)
			begin(t, l, "pay:1", 1).Release(t.Context())
		}
	})
	// The run of a lost lease is withdrawn in the background, unless another run has
	// begun.
	sim(t, "lost lease", func(t *testing.T) {
		l, store := setup(t)
		for _, key := range []string{"pay:1", "pay:2"} {
			lease := begin(t, l, key, 1, core.NoRenew(), core.TTL(time.Second))
			lossTime(t, lease)
			time.Sleep(time.Second)
			want := 1
			if key == "pay:2" {
				begin(t, newLocker(t, store.inner), key, 2).Release(t.Context())
				want = 3
			}
			wantErr(t, lease.Withdraw(t.Context()), core.ErrLost)
			time.Sleep(time.Second)
			begin(t, l, key, want).Release(t.Context())
		}
	})
	// A repeated request to begin a run does not begin the run again if it arrives
	// after Withdraw.
	sim(t, "stragglers after Withdraw", func(t *testing.T) {
		l, store := setup(t)
		store.set(first(1, late(2*time.Second)), opAcquire)
		lease := begin(t, l, "pay:1", 1)
		if err := lease.Withdraw(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		wantFree(t, store.inner, "pay:1")
		begin(t, l, "pay:1", 1).Release(t.Context())
	})
	sim(t, "lease without a run", func(t *testing.T) {
		l, _ := setup(t)
		lease := acquire(t, t.Context(), l, "job:1", core.KeepFor(time.Hour))
		for range 2 {
			wantErr(t, lease.Withdraw(t.Context()), nil)
		}
		wantErr(t, lease.Release(t.Context()), nil)
		acquire(t, t.Context(), l, "job:1", core.Wait(0)).Release(t.Context())
	})
}
