package once_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
)

// policies has sets of options. The results must be the same with each set.
var policies = map[string][]once.Option{"": nil, " AtMostOnce": {once.AtMostOnce()}}

// TestLateAnswer checks runs whose lease is released or lost before fn returns
// (hazard 58).
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	// closing returns a Once, and an fn that closes the Locker of the Once and
	// continues. After that the fn calls meanwhile, unless meanwhile is nil.
	closing := func(t *testing.T, store core.Store, meanwhile func(), opts ...once.Option) (*once.Once, func(context.Context) (once.Answer, error)) {
		t.Helper()
		l, err := core.New(store)
		if err != nil {
			t.Fatal(err)
		}
		o, err := once.New(l, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return o, func(ctx context.Context) (once.Answer, error) {
			end, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			wantErr(t, l.Close(end), context.DeadlineExceeded)
			wantErr(t, context.Cause(ctx), core.ErrClosed)
			if meanwhile != nil {
				meanwhile()
			}
			return once.Answer{Value: []byte("receipt")}, nil
		}
	}
	for policy, opts := range policies {
		sim(t, "answer after Close"+policy, func(t *testing.T) {
			store := memstore.New()
			o, fn := closing(t, store, nil, opts...)
			if out, err := o.Do(t.Context(), charge("1"), fn); err != nil || string(out.Value) != "receipt" {
				t.Errorf("got %+v and %v, want the receipt", out, err)
			}
			replayed(t, newOnce(t, store, opts...), charge("1"), "receipt", 1)
		})
		// An answer after an outage is stored, even if the outage was longer than the
		// TTL.
		sim(t, "answer after a long outage"+policy, func(t *testing.T) {
			store := newFlaky()
			o := newOnce(t, store, append(opts, lasting(time.Second))...)
			out, err := o.Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
				store.set(true)
				time.Sleep(2500 * time.Millisecond)
				store.set(false)
				wantErr(t, context.Cause(ctx), core.ErrLost)
				return once.Answer{Value: []byte("receipt")}, nil
			})
			if err != nil || string(out.Value) != "receipt" || out.Attempt != 1 {
				t.Errorf("got %+v and %v, want the receipt of attempt 1", out, err)
			}
			replayed(t, newOnce(t, store, opts...), charge("1"), "receipt", 1)
		})
	}
	// If the store does not confirm an answer after Close, Do returns the answer with an
	// error.
	sim(t, "unconfirmed answer after Close", func(t *testing.T) {
		store := newFlaky()
		o, fn := closing(t, store, func() { store.set(true) })
		out, err := o.Do(t.Context(), charge("1"), fn)
		wantErr(t, err, core.ErrUnavailable)
		if string(out.Value) != "receipt" || out.Attempt != 1 {
			t.Errorf("got %+v, want the outcome with the error", out)
		}
		store.set(false)
		first(t, newOnce(t, store), charge("1"), "another", 2)
	})
	// If another run has begun, an answer after Close is not stored, and Do returns it
	// with an error.
	sim(t, "successor after Close", func(t *testing.T) {
		store := memstore.New()
		other := newOnce(t, store)
		o, fn := closing(t, store, func() { first(t, other, charge("1"), "another", 2) })
		out, err := o.Do(t.Context(), charge("1"), fn)
		wantErr(t, err, core.ErrLost)
		if string(out.Value) != "receipt" || out.Attempt != 1 {
			t.Errorf("got %+v, want the outcome with the error", out)
		}
		replayed(t, other, charge("1"), "another", 2)
	})
	// A run that fails after Close does not count as a run that died.
	sim(t, "failure after Close", func(t *testing.T) {
		store := memstore.New()
		o, fn := closing(t, store, nil, once.AtMostOnce())
		declined := errors.New("declined")
		_, err := o.Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
			_, _ = fn(ctx)
			return once.Answer{}, declined
		})
		if err != declined {
			t.Errorf("got %v, want fn's error", err)
		}
		first(t, newOnce(t, store, once.AtMostOnce()), charge("1"), "receipt", 2)
	})
	// A run that is withdrawn after Close does not count as an attempt.
	sim(t, "withdrawn after Close", func(t *testing.T) {
		store := memstore.New()
		o, fn := closing(t, store, nil)
		_, err := o.Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
			_, _ = fn(ctx)
			return once.Answer{}, once.Withdraw(core.ErrBusy)
		})
		wantErr(t, err, core.ErrBusy)
		first(t, newOnce(t, store), charge("1"), "receipt", 1)
	})
}

// TestMismatch_Record checks that a call that is refused because of its
// fingerprint does not change the record.
func TestMismatch_Record(t *testing.T) {
	t.Parallel()
	// A mismatch does not make the retention of a failed run longer.
	sim(t, "no longer retained", func(t *testing.T) {
		o := newOnce(t, memstore.New(), once.Retain(time.Hour))
		_, _ = o.Do(t.Context(), charge("1"), new(runs).failing(errors.New("declined")))
		other := charge("1")
		other.Fingerprint = []byte("20 EUR")
		for range 3 {
			time.Sleep(15 * time.Minute)
			refused(t, o, other, once.ErrMismatch)
		}
		time.Sleep(15*time.Minute + time.Second)
		first(t, o, other, "a new call", 1)
	})
	sim(t, "record of a failed run", func(t *testing.T) {
		o := newOnce(t, memstore.New(), once.Retain(time.Hour))
		_, _ = o.Do(t.Context(), charge("1"), new(runs).failing(errors.New("declined")))
		other := charge("1")
		other.Fingerprint = []byte("20 EUR")
		refused(t, o, other, once.ErrMismatch)
		first(t, o, charge("1"), "receipt", 2)
	})
}
