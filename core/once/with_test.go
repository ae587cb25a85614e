package once_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
)

func TestWith(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks, err := core.New(memstore.New())
		if err != nil {
			t.Fatal(err)
		}
		o, err := once.New(locks, once.Acquire(core.TTL(10*time.Second)))
		if err != nil {
			t.Fatal(err)
		}
		call := once.Call{Name: "mail", Key: "42"}
		begun := make(chan struct{})
		slow := func(context.Context) (once.Answer, error) {
			close(begun)
			time.Sleep(time.Minute)
			return once.Answer{Value: []byte("sent")}, nil
		}
		go func() {
			if _, err := o.Do(t.Context(), call, slow); err != nil {
				t.Error(err)
			}
		}()
		<-begun
		never := func(context.Context) (once.Answer, error) {
			t.Error("fn ran twice")
			return once.Answer{}, nil
		}
		if _, err := o.Do(t.Context(), call, never); !errors.Is(err, once.ErrInProgress) {
			t.Errorf("o itself waits: %v", err)
		}
		if _, err := o.With(core.Wait(-1)).Do(t.Context(), call, never); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
		out, err := o.With(core.Wait(time.Hour)).Do(t.Context(), call, never)
		if err != nil || string(out.Value) != "sent" || !out.Replayed {
			t.Errorf("got %+v, %v; want the other's answer", out, err)
		}
		l, opts := adapter.Terms(o)
		if ttl, _, err := adapter.Limits(l, opts...); l != locks || ttl != 10*time.Second || err != nil {
			t.Errorf("the terms say TTL %v, %v", ttl, err)
		}
		if wait, err := adapter.Check(l, append([]core.AcquireOption{core.Wait(time.Minute)}, opts...)...); wait != time.Minute || err != nil {
			t.Errorf("got the terms' own wait %v, %v; want none", wait, err)
		}
	})
}

func TestWith_Label(t *testing.T) {
	t.Parallel()
	// A label changes the name in events and errors, and not the call.
	sim(t, "label in events and errors", func(t *testing.T) {
		events := make(chan core.Event, 64)
		locks, err := core.New(memstore.New(), core.WithObserver(collect(events)))
		if err != nil {
			t.Fatal(err)
		}
		o, err := once.New(locks, once.AtMostOnce())
		if err != nil {
			t.Fatal(err)
		}
		labelled := adapter.WithLabel(o, "checkout")
		first(t, labelled, charge("1"), "receipt", 1)
		replayed(t, o, charge("1"), "receipt", 1)
		replayed(t, labelled, charge("1"), "receipt", 1)
		other, strict := charge("1"), charge("2")
		other.Fingerprint = []byte("another request")
		errs := []error{
			refused(t, labelled, other, once.ErrMismatch),
			func() error {
				_, err := labelled.Do(t.Context(), strict, func(ctx context.Context) (once.Answer, error) {
					_, err := labelled.Do(ctx, strict, new(runs).work("x"))
					wantErr(t, err, once.ErrInProgress)
					return once.Answer{}, errors.Join(err, once.ErrIndeterminate)
				})
				return err
			}(),
			refused(t, labelled, strict, once.ErrIndeterminate),
		}
		for _, err := range errs {
			if text := err.Error(); !strings.Contains(text, "checkout") || strings.Contains(text, charge("1").Name) {
				t.Errorf("the error is %q", text)
			}
		}
		close(events)
		names := make(map[string]int)
		for e := range events {
			names[e.Name]++
		}
		if len(names) != 2 || names["checkout"] == 0 || names[charge("1").Name] != 1 {
			t.Errorf("the events have the names %v", names)
		}
	})
	sim(t, "label that is not allowed", func(t *testing.T) {
		store := newFlaky()
		o := newOnce(t, store)
		before := store.count()
		_, err := adapter.WithLabel(o, "check out").Do(t.Context(), charge("1"), new(runs).work("x"))
		if wantErr(t, err, core.ErrInvalid); store.count() != before {
			t.Errorf("%d calls were made", store.count()-before)
		}
	})
}

func TestAttempt_Read(t *testing.T) {
	t.Parallel()
	// AttemptAsked reports whether code in the run has read the number of the attempt.
	sim(t, "attempt was read", func(t *testing.T) {
		o := newOnce(t, memstore.New())
		if adapter.AttemptAsked(t.Context()) {
			t.Error("there is no run")
		}
		_, err := o.Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
			before := adapter.AttemptAsked(ctx)
			_, err := o.Do(ctx, charge("2"), func(ctx context.Context) (once.Answer, error) {
				once.AttemptFromContext(ctx)
				return once.Answer{}, nil
			})
			inner := adapter.AttemptAsked(ctx)
			under, cancel := context.WithCancel(ctx)
			defer cancel()
			once.AttemptFromContext(under)
			if before || inner || !adapter.AttemptAsked(ctx) || !adapter.AttemptAsked(under) {
				t.Errorf("before it was asked %v, after another run was %v, and then %v", before, inner, adapter.AttemptAsked(ctx))
			}
			return once.Answer{}, err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

type collect chan<- core.Event

func (c collect) Observe(_ context.Context, e core.Event) { c <- e }
