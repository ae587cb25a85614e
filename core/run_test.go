package core_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

func begun() store.Record { return store.Record{Value: []byte("begun"), Retain: time.Hour} }

func finished(value string, attempt int) store.Record {
	return store.Record{Value: []byte(value), Attempt: attempt, Done: true, Retain: time.Hour}
}

// begin begins a run. It fails the test unless the run has the given attempt and no
// answer yet.
func begin(t *testing.T, l *core.Locker, key string, attempt int, opts ...core.AcquireOption) *core.Lease {
	t.Helper()
	lease, r, err := l.Begin(t.Context(), key, begun(), opts...)
	if err != nil {
		t.Fatalf("Begin: %v", err)
	}
	if lease == nil || r.Done || r.Attempt != attempt {
		t.Fatalf("Begin gave lease %v and %+v, want a lease and attempt %d", lease, r, attempt)
	}
	return lease
}

func wantAnswer(t *testing.T, l *core.Locker, key, value string, opts ...core.AcquireOption) {
	t.Helper()
	lease, r, err := l.Begin(t.Context(), key, begun(), opts...)
	if err != nil || lease != nil || !r.Done || string(r.Value) != value {
		t.Errorf("Begin gave lease %v, %+v and %v, want the answer %q", lease, r, err, value)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	// A run takes two calls to the store, and the replay of its answer takes one.
	sim(t, "two calls and one", func(t *testing.T) {
		seen := &recorder{}
		l, store := setup(t, core.WithObserver(seen))
		lease := begin(t, l, "pay:1", 1)
		if err := lease.Finish(t.Context(), finished("receipt", 1)); err != nil {
			t.Fatal(err)
		}
		if n := store.count(); n != 2 {
			t.Errorf("the run cost %d calls, want 2", n)
		}
		wantAnswer(t, l, "pay:1", "receipt")
		if n := store.count(); n != 3 {
			t.Errorf("the answer cost %d calls, want 1", n-2)
		}
		if got := seen.kinds(); got != "acquired, released" {
			t.Errorf("the events are %q", got)
		}
		wantFree(t, store.inner, "pay:1")
	})
	// A Begin of a run in progress fails with ErrBusy, even under the run's own
	// context. LeaseFromContext does not find the run's lease.
	sim(t, "run in progress", func(t *testing.T) {
		l, _ := setup(t)
		outer := acquire(t, t.Context(), l, "order:1")
		lease, _, err := l.Begin(outer.Context(), "pay:1", begun())
		if err != nil {
			t.Fatal(err)
		}
		for _, ctx := range []context.Context{t.Context(), lease.Context()} {
			_, _, err := l.Begin(ctx, "pay:1", begun(), core.Wait(0))
			wantErr(t, err, core.ErrBusy)
			_, err = l.TryAcquire(ctx, "pay:1")
			wantErr(t, err, core.ErrBusy)
		}
		if found, _ := core.LeaseFromContext(lease.Context()); found != outer {
			t.Error("the innermost lease is not the one around the run")
		}
		if _, ok := core.LeaseOf(lease.Context(), "pay:1"); ok {
			t.Error("the run's own lease is found")
		}
		release(t, lease)
		release(t, outer)
	})
	sim(t, "caller waits for the answer", func(t *testing.T) {
		l, store := setup(t)
		other := newLocker(t, store.inner)
		lease := begin(t, l, "pay:1", 1)
		var wg sync.WaitGroup
		for _, l := range []*core.Locker{l, l, other, other} {
			wg.Go(func() { wantAnswer(t, l, "pay:1", "receipt", core.Wait(time.Minute)) })
		}
		time.Sleep(10 * time.Second)
		if err := lease.Finish(t.Context(), finished("receipt", 1)); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		wantFree(t, store.inner, "pay:1")
	})
	// After a run that was released or has failed, the next Begin begins another
	// attempt.
	sim(t, "begun again", func(t *testing.T) {
		l, _ := setup(t)
		release(t, begin(t, l, "pay:1", 1))
		lease := begin(t, l, "pay:1", 2)
		failed := store.Record{Value: []byte("failed"), Attempt: 2, Retain: time.Hour}
		if err := lease.Finish(t.Context(), failed); err != nil {
			t.Fatal(err)
		}
		lease, r, err := l.Begin(t.Context(), "pay:1", begun())
		if err != nil || r.Attempt != 3 || string(r.Value) != "failed" {
			t.Fatalf("Begin gave %+v and %v, want attempt 3 with what the second left", r, err)
		}
		release(t, lease)
	})
	// A run that has lost its lease does not overwrite the answer of the next run.
	sim(t, "answer of the successor", func(t *testing.T) {
		l, store := setup(t)
		lease := begin(t, l, "pay:1", 1, core.NoRenew(), core.TTL(time.Second))
		time.Sleep(2 * time.Second)
		wantLost(t, lease)
		next := begin(t, newLocker(t, store.inner), "pay:1", 2)
		wantErr(t, lease.Finish(t.Context(), finished("late", 1)), core.ErrLost)
		if err := next.Finish(t.Context(), finished("receipt", 2)); err != nil {
			t.Fatal(err)
		}
		wantErr(t, lease.Finish(t.Context(), finished("later", 1)), core.ErrLost)
		wantAnswer(t, l, "pay:1", "receipt")
	})
	// If the lease of a run is lost only in this process, the store still has the hold.
	// The answer of the run is then saved.
	sim(t, "lost in this process only", func(t *testing.T) {
		l, store := setup(t)
		lease := begin(t, l, "pay:1", 1, core.TTL(time.Minute))
		down := func(context.Context, int, func() error) error { return errBroken }
		store.set(down, opExtend)
		lossTime(t, lease)
		if err := lease.Finish(t.Context(), finished("receipt", 1)); err != nil {
			t.Error(err)
		}
		wantAnswer(t, l, "pay:1", "receipt")
	})
	// If the store does not confirm the answer of a run, the answer is saved in the
	// background.
	sim(t, "unconfirmed answer", func(t *testing.T) {
		l, store := setup(t)
		for _, f := range []fault{loseRequest, hang} {
			key := "pay:" + time.Now().String()
			lease := begin(t, l, key, 1)
			store.set(f, opRelease)
			wantErr(t, lease.Finish(t.Context(), finished("receipt", 1)), core.ErrUnavailable)
			store.set(nil, opRelease)
			time.Sleep(10 * time.Second)
			wantAnswer(t, l, key, "receipt")
		}
	})
	// A begin whose reply is lost counts as one attempt. A finish whose reply is lost
	// saves one answer.
	sim(t, "lost replies", func(t *testing.T) {
		for name, f := range map[string]fault{"broken": loseReply, "hanging": hangAfter} {
			l, store := setup(t)
			store.set(first(1, f), opAcquire)
			store.set(first(1, f), opRelease)
			lease := begin(t, l, "pay:1", 1)
			if err := lease.Finish(t.Context(), finished("receipt", 1)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			time.Sleep(10 * time.Second)
			wantAnswer(t, l, "pay:1", "receipt")
		}
	})
}

func TestRunRefusals(t *testing.T) {
	t.Parallel()
	l, s := setup(t)
	for name, opts := range map[string][]core.AcquireOption{
		"Shared": {core.Shared()}, "Permits": {core.Permits(1, 2)}, "Also": {core.Also("b")}, "KeepFor": {core.KeepFor(time.Second)},
	} {
		if _, _, err := l.Begin(t.Context(), "a", begun(), opts...); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%s: got %v, want %v", name, err, core.ErrInvalid)
		}
	}
	_, _, err := l.Begin(t.Context(), "a", store.Record{})
	wantErr(t, err, core.ErrInvalid)
	if n := s.count(); n != 0 {
		t.Errorf("%d calls were made", n)
	}
	lease := acquire(t, t.Context(), l, "a")
	wantErr(t, lease.Finish(t.Context(), finished("answer", 1)), core.ErrInvalid)
	wantHeldLease(t, lease)
	release(t, lease)
	run := begin(t, l, "b", 1)
	wantErr(t, run.Finish(t.Context(), store.Record{Done: true}), core.ErrInvalid)
	wantHeldLease(t, run)
	release(t, run)
}
