package once_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
)

func TestContext(t *testing.T) {
	t.Parallel()
	// fn runs under a lease that is extended. LeaseFromContext does not find this
	// lease.
	sim(t, "lease of the run", func(t *testing.T) {
		o := newOnce(t, memstore.New())
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "the caller's")
		_, err := o.Do(ctx, charge("1"), func(ctx context.Context) (once.Answer, error) {
			if _, ok := core.LeaseFromContext(ctx); ok {
				t.Error("the lease of the run is found")
			}
			if ctx.Value(key{}) != "the caller's" {
				t.Error("the caller's values are missing")
			}
			time.Sleep(10 * time.Minute)
			refused(t, o, charge("1"), once.ErrInProgress)
			return once.Answer{}, ctx.Err()
		})
		if err != nil {
			t.Error(err)
		}
		if _, ok := once.AttemptFromContext(t.Context()); ok {
			t.Error("there is an attempt outside of a run")
		}
	})
	// A run inside a run has its own attempt, and does not change the attempt of the
	// outer run.
	sim(t, "run inside a run", func(t *testing.T) {
		o := newOnce(t, memstore.New())
		_, _ = o.Do(t.Context(), charge("1"), new(runs).failing(errors.New("declined")))
		_, err := o.Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
			var inner runs
			if _, err := o.Do(ctx, charge("2"), inner.work("inner")); err != nil || inner.attempts[0] != 1 {
				t.Errorf("inside: %v, attempts %v", err, inner.attempts)
			}
			if n, _ := once.AttemptFromContext(ctx); n != 2 {
				t.Errorf("the outer run is attempt %d, want 2", n)
			}
			refused(t, o, charge("1"), once.ErrInProgress) // the outer run is not re-entered
			return once.Answer{}, nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	// The context of a run that loses its lease is done with ErrLost, and its answer is
	// stored.
	sim(t, "run that loses its lease", func(t *testing.T) {
		store := memstore.New()
		o := newOnce(t, store, once.Acquire(core.NoRenew(), core.TTL(time.Second)))
		out, err := o.Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
			<-ctx.Done()
			wantErr(t, context.Cause(ctx), core.ErrLost)
			time.Sleep(time.Second)
			return once.Answer{Value: []byte("late")}, nil
		})
		if err != nil || string(out.Value) != "late" || out.Replayed || out.Attempt != 1 {
			t.Errorf("got %+v and %v, want the outcome of attempt 1", out, err)
		}
		replayed(t, newOnce(t, store), charge("1"), "late", 1)
	})
	// The answer of a run that lost its lease is not stored if another run has begun.
	sim(t, "successor of a lost run", func(t *testing.T) {
		store := memstore.New()
		o, other := newOnce(t, store, once.Acquire(core.NoRenew(), core.TTL(time.Second))), newOnce(t, store)
		out, err := o.Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			first(t, other, charge("1"), "receipt", 2)
			return once.Answer{Value: []byte("late")}, nil
		})
		if string(out.Value) != "late" || out.Replayed || out.Attempt != 1 {
			t.Errorf("got %+v, want the outcome with the error", out)
		}
		wantErr(t, err, core.ErrLost)
		replayed(t, o, charge("1"), "receipt", 2)
	})
	// If the caller leaves during the run, the answer is stored (hazard 47).
	sim(t, "caller leaves during the run", func(t *testing.T) {
		o := newOnce(t, memstore.New())
		ctx, leave := context.WithCancelCause(t.Context())
		gone := errors.New("the client went away")
		out, err := o.Do(ctx, charge("1"), func(ctx context.Context) (once.Answer, error) {
			leave(gone)
			<-ctx.Done()
			wantErr(t, context.Cause(ctx), gone)
			return once.Answer{Value: []byte("receipt")}, nil
		})
		if err != nil || string(out.Value) != "receipt" {
			t.Errorf("got %+v and %v", out, err)
		}
		replayed(t, o, charge("1"), "receipt", 1)
	})
	// If the caller has left before the call, nothing is run or sent.
	sim(t, "caller that left before", func(t *testing.T) {
		store := newFlaky()
		o := newOnce(t, store)
		gone := errors.New("the client went away")
		ctx, leave := context.WithCancelCause(t.Context())
		leave(gone)
		var r runs
		_, err := o.Do(ctx, charge("1"), r.work("x"))
		wantErr(t, err, gone, context.Canceled)
		if errors.Is(err, once.ErrInProgress) {
			t.Errorf("%v: nobody knows that", err)
		}
		r.want(t, 0)
		if n := store.count(); n != 0 {
			t.Errorf("%d calls to the store", n)
		}
		first(t, o, charge("1"), "receipt", 1)
	})
	// If the caller leaves during the claim, nothing is run, and the claim does not
	// count as an attempt.
	sim(t, "caller leaves during the claim", func(t *testing.T) {
		store := newFlaky()
		o := newOnce(t, store, once.AtMostOnce())
		gone := errors.New("the client went away")
		ctx, leave := context.WithCancelCause(t.Context())
		store.granted = func() { leave(gone) }
		var r runs
		_, err := o.Do(ctx, charge("1"), r.work("x"))
		wantErr(t, err, gone)
		if errors.Is(err, once.ErrInProgress) || errors.Is(err, core.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		r.want(t, 0)
		store.granted = nil
		first(t, o, charge("1"), "receipt", 1)
	})
	// A caller that leaves while it waits gets the cause of its context, and nothing is
	// run.
	sim(t, "caller leaves while it waits", func(t *testing.T) {
		o := newOnce(t, memstore.New(), wait(time.Hour))
		gone := errors.New("the client went away")
		ctx, leave := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := o.Do(t.Context(), charge("1"), func(context.Context) (once.Answer, error) {
				time.Sleep(time.Minute)
				return once.Answer{Value: []byte("receipt")}, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		time.AfterFunc(time.Second, func() { leave(gone) })
		var r runs
		_, err := o.Do(ctx, charge("1"), r.work("x"))
		wantErr(t, err, once.ErrInProgress, core.ErrBusy, gone)
		r.want(t, 0)
		wg.Wait()
		replayed(t, o, charge("1"), "receipt", 1)
	})
}
