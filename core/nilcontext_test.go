package core_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

func TestNilContext(t *testing.T) {
	t.Parallel()
	var none context.Context
	// An acquire without a context is invalid, and sends nothing.
	sim(t, "acquire without a context", func(t *testing.T) {
		l, s := setup(t)
		_, err := l.Acquire(none, "order:1")
		_, errTry := l.TryAcquire(none, "order:1")
		_, _, errRun := l.Begin(none, "order:1", store.Record{Retain: time.Minute})
		for _, err := range []error{err, errTry, errRun, l.Do(none, "order:1", unreached(t))} {
			wantErr(t, err, core.ErrInvalid)
		}
		if n := s.count(); n != 0 {
			t.Errorf("%d calls were sent, want none", n)
		}
	})
	// An acquire that panics leaves no work to its Locker.
	sim(t, "acquire under a panicking context", func(t *testing.T) {
		l, _ := setup(t)
		if !recovered(func() { _, _ = l.Acquire(&panicking{Context: t.Context()}, "order:1") }) {
			t.Error("test setup: got no panic")
		}
	})
	// Extend and Close without a context are invalid, and change nothing.
	sim(t, "Extend and Close", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		deadline := lease.Deadline()
		wantErr(t, lease.Extend(none, time.Hour), core.ErrInvalid)
		wantErr(t, l.Close(none), core.ErrInvalid)
		if got := lease.Deadline(); !got.Equal(deadline) {
			t.Errorf("the deadline moved by %v", got.Sub(deadline))
		}
		release(t, acquire(t, t.Context(), l, "order:2"))
		release(t, lease)
		wantFree(t, store.inner, "order:1")
	})
	// Release, Withdraw and Finish work without a context.
	sim(t, "Release", func(t *testing.T) {
		l, s := setup(t, core.WithObserver(looking{}))
		wantErr(t, acquire(t, t.Context(), l, "order:1").Release(none), nil)
		run, _, err := l.Begin(t.Context(), "order:1", store.Record{Retain: time.Minute})
		wantErr(t, err, nil)
		wantErr(t, run.Withdraw(none), nil)
		run, _, err = l.Begin(t.Context(), "order:1", store.Record{Retain: time.Minute})
		wantErr(t, err, nil)
		wantErr(t, run.Release(none), nil)
		wantErr(t, run.Finish(none, store.Record{Retain: time.Minute, Done: true, Attempt: 1}), nil)
		wantFree(t, s.inner, "order:1")
	})
}

type panicking struct{ context.Context }

func (*panicking) Value(any) any { panic("no values") }

type looking struct{}

func (looking) Observe(ctx context.Context, _ core.Event) { _ = ctx.Err() }
