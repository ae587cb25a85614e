package once_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
)

// busy returns an fn that returns value and marks it as not final.
func (r *runs) busy(value string) func(context.Context) (once.Answer, error) {
	return func(ctx context.Context) (once.Answer, error) {
		r.note(ctx)
		if !once.NotFinal(ctx) {
			return once.Answer{}, errors.New("NotFinal had no effect")
		}
		return once.Answer{Value: []byte(value)}, nil
	}
}

// unstored makes the call c with an answer that is not final. It fails the test unless
// c is run as attempt, and the caller gets the answer.
func unstored(t *testing.T, o *once.Once, c once.Call, attempt int) {
	t.Helper()
	var r runs
	out, err := o.Do(t.Context(), c, r.busy("channel busy"))
	if err != nil || out.Replayed || string(out.Value) != "channel busy" || out.Attempt != attempt || r.n != 1 {
		t.Errorf("got %+v, %v after %d runs, want the answer of attempt %d", short(out), err, r.n, attempt)
	}
}

func TestNotFinal(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]once.Option{"by default": nil, "AtMostOnce": {once.AtMostOnce()}} {
		sim(t, "run again "+name, func(t *testing.T) {
			o := newOnce(t, memstore.New(), opts...)
			unstored(t, o, charge("1"), 1)
			other := charge("1")
			other.Fingerprint = nil
			refused(t, o, other, once.ErrMismatch)
			unstored(t, o, charge("1"), 2)
			first(t, o, charge("1"), "receipt", 3)
			replayed(t, o, charge("1"), "receipt", 3)
		})
	}
	sim(t, "called by goroutines and twice", func(t *testing.T) {
		o := newOnce(t, memstore.New())
		out, err := o.Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					if !adapter.IsFinal(ctx) && !once.NotFinal(ctx) || !once.NotFinal(ctx) || adapter.IsFinal(ctx) {
						t.Error("got no mark, want one")
					}
				})
			}
			wg.Wait()
			return once.Answer{Value: []byte("busy"), Unreplayable: true}, nil
		})
		if err != nil || string(out.Value) != "busy" {
			t.Errorf("got %+v, %v; want the answer", short(out), err)
		}
		first(t, o, charge("1"), "receipt", 2)
	})
	sim(t, "called after fn returned", func(t *testing.T) {
		o := newOnce(t, memstore.New())
		var of context.Context
		if _, err := o.Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
			of = ctx
			return once.Answer{Value: []byte("receipt")}, nil
		}); err != nil {
			t.Error(err)
		}
		if once.NotFinal(of) {
			t.Error("got true, want false")
		}
		replayed(t, o, charge("1"), "receipt", 1)
	})
	sim(t, "no run", func(t *testing.T) {
		ctx := t.Context()
		if once.NotFinal(ctx) || !adapter.IsFinal(ctx) {
			t.Error("got a run, want none")
		}
		l := newLocker(t, memstore.New())
		if err := l.Do(ctx, "order:1", func(ctx context.Context) error {
			if once.NotFinal(ctx) {
				t.Error("got true under a lock, want false")
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	sim(t, "an error or panic counts instead", func(t *testing.T) {
		o := newOnce(t, memstore.New(), once.AtMostOnce())
		unclear := func(ctx context.Context) (once.Answer, error) {
			once.NotFinal(ctx)
			return once.Answer{}, once.ErrIndeterminate
		}
		panics := func(ctx context.Context) (once.Answer, error) {
			once.NotFinal(ctx)
			panic("out of cards")
		}
		taken := func(ctx context.Context) (once.Answer, error) {
			once.NotFinal(ctx)
			return once.Answer{}, once.Withdraw(errNoOrder)
		}
		_, err := o.Do(t.Context(), charge("1"), unclear)
		wantErr(t, err, once.ErrIndeterminate)
		refused(t, o, charge("1"), once.ErrIndeterminate)
		func() {
			defer func() { _ = recover() }()
			_, _ = o.Do(t.Context(), charge("2"), panics)
		}()
		refused(t, o, charge("2"), once.ErrIndeterminate)
		_, err = o.Do(t.Context(), charge("3"), taken)
		wantErr(t, err, errNoOrder)
		first(t, o, charge("3"), "receipt", 1)
	})
	sim(t, "only the innermost run", func(t *testing.T) {
		o := newOnce(t, memstore.New())
		_, err := o.Do(t.Context(), charge("outer"), func(ctx context.Context) (once.Answer, error) {
			_, err := o.Do(ctx, charge("inner"), new(runs).busy("channel busy"))
			return once.Answer{Value: []byte("by another channel")}, err
		})
		wantErr(t, err, nil)
		replayed(t, o, charge("outer"), "by another channel", 1)
		first(t, o, charge("inner"), "receipt", 2)
	})
	sim(t, "unsaved failure", func(t *testing.T) {
		store := newFlaky()
		o := newOnce(t, store)
		out, err := o.Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
			store.set(true)
			return new(runs).busy("channel busy")(ctx)
		})
		wantErr(t, err, core.ErrUnavailable)
		if string(out.Value) != "channel busy" {
			t.Errorf("got %+v, want the answer beside the error", short(out))
		}
	})
	sim(t, "event of a failed run", func(t *testing.T) {
		o, events := hearing(t, memstore.New())
		unstored(t, o, charge("1"), 1)
		if e := events(); len(e) != 1 || e[0].Kind != core.Ran || e[0].Attempt != 1 || e[0].Err == nil {
			t.Errorf("got %+v, want one run that failed", e)
		}
	})
}

func TestNotFinal_Guard(t *testing.T) {
	t.Parallel()
	sim(t, "answer without a form in JSON", func(t *testing.T) {
		runs := 0
		pay := once.Guard(newOnce(t, memstore.New()), func(p payment) (once.Call, error) { return charge(p.Order), nil },
			func(ctx context.Context, _ payment) (any, error) {
				if runs++; runs < 3 {
					once.NotFinal(ctx)
					return func() {}, nil
				}
				return "paid", nil
			})
		for range 2 {
			if got, err := pay(t.Context(), payment{Order: "1"}); err != nil || got == nil {
				t.Errorf("got %v, %v; want what fn returned", got, err)
			}
		}
		for range 2 {
			if got, err := pay(t.Context(), payment{Order: "1"}); err != nil || got != "paid" || runs != 3 {
				t.Errorf("got %v, %v after %d runs; want the stored answer", got, err, runs)
			}
		}
	})
}
