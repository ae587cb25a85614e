package once_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
)

type payment struct {
	Order  string
	Amount int64
}

type receipt struct {
	Number int
	Lines  []string
	hidden int
}

func TestGuard(t *testing.T) {
	t.Parallel()
	call := func(p payment) (once.Call, error) {
		if p.Order == "" {
			return once.Call{}, errNoOrder
		}
		print, err := json.Marshal(p)
		return once.Call{Name: "charge", Scope: "tenant", Key: p.Order, Fingerprint: print}, err
	}
	// Equal requests have one answer. A different request under the same key is
	// refused.
	sim(t, "equal requests", func(t *testing.T) {
		o, n := newOnce(t, memstore.New()), 0
		pay := once.Guard(o, call, func(ctx context.Context, p payment) (receipt, error) {
			n++
			return receipt{Number: n, Lines: []string{p.Order}, hidden: 7}, nil
		})
		got, err := pay(t.Context(), payment{"42", 10})
		if err != nil || got.Number != 1 || got.hidden != 7 {
			t.Errorf("got %+v and %v, want what fn returned as it is", got, err)
		}
		for range 3 {
			got, err = pay(t.Context(), payment{"42", 10})
			if err != nil || got.Number != 1 || len(got.Lines) != 1 || got.Lines[0] != "42" || got.hidden != 0 {
				t.Errorf("got %+v and %v, want the first answer", got, err)
			}
		}
		_, err = pay(t.Context(), payment{"42", 1000})
		wantErr(t, err, once.ErrMismatch)
		if n != 1 {
			t.Errorf("%d runs", n)
		}
		if _, err = pay(t.Context(), payment{}); err != errNoOrder {
			t.Errorf("got %v, want call's own error", err)
		}
	})
	// A value that fn returns with an error reaches the caller, and is not stored.
	sim(t, "value with an error", func(t *testing.T) {
		declined := errors.New("declined")
		pay := once.Guard(newOnce(t, memstore.New()), call, func(ctx context.Context, p payment) (receipt, error) {
			n, _ := once.AttemptFromContext(ctx)
			return receipt{Number: n}, declined
		})
		for attempt := 1; attempt <= 2; attempt++ {
			if got, err := pay(t.Context(), payment{"42", 10}); err != declined || got.Number != attempt {
				t.Errorf("got %+v and %v", got, err)
			}
		}
	})
	sim(t, "unsaved answer", func(t *testing.T) {
		store := newFlaky()
		pay := once.Guard(newOnce(t, store), call, func(ctx context.Context, p payment) (receipt, error) {
			store.set(true)
			return receipt{Number: 9}, nil
		})
		got, err := pay(t.Context(), payment{"42", 10})
		if got.Number != 9 {
			t.Errorf("got %+v", got)
		}
		wantErr(t, err, core.ErrUnavailable)
	})
	// If a result cannot be encoded as JSON, only the caller of the run gets the
	// result, and the work is not run again.
	sim(t, "answer that is no JSON", func(t *testing.T) {
		o, n := newOnce(t, memstore.New()), 0
		open := once.Guard(o, call, func(context.Context, payment) (chan int, error) { n++; return make(chan int), nil })
		got, err := open(t.Context(), payment{"42", 10})
		if got == nil {
			t.Error("the caller did not get what fn returned")
		}
		wantErr(t, err, once.ErrUnreplayable)
		var unsupported *json.UnsupportedTypeError
		if !errors.As(err, &unsupported) {
			t.Errorf("%v does not say why", err)
		}
		got, err = open(t.Context(), payment{"42", 10})
		if got != nil || n != 1 {
			t.Errorf("got %v after %d runs", got, n)
		}
		wantErr(t, err, once.ErrUnreplayable)
	})
	// An answer that cannot be decoded as the type is an error, and the work is not run
	// again.
	sim(t, "answer of another type", func(t *testing.T) {
		o, n := newOnce(t, memstore.New()), 0
		first := once.Guard(o, call, func(context.Context, payment) (receipt, error) { n++; return receipt{Number: 1}, nil })
		then := once.Guard(o, call, func(context.Context, payment) ([]int, error) { n++; return nil, nil })
		if _, err := first(t.Context(), payment{"42", 10}); err != nil {
			t.Fatal(err)
		}
		got, err := then(t.Context(), payment{"42", 10})
		var mistyped *json.UnmarshalTypeError
		if !errors.As(err, &mistyped) || got != nil || n != 1 {
			t.Errorf("got %v and %v after %d runs", got, err, n)
		}
	})
}

var errNoOrder = errors.New("which order?")
