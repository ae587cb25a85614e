package once_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
)

func TestWithdraw(t *testing.T) {
	t.Parallel()
	busy := &core.BusyError{Name: "order"}
	withdraw := func(context.Context) (once.Answer, error) {
		return once.Answer{}, fmt.Errorf("wrapped: %w", once.Withdraw(busy))
	}
	for name, opts := range map[string][]once.Option{"": nil, " AtMostOnce": {once.AtMostOnce()}} {
		sim(t, "withdrawn by fn"+name, func(t *testing.T) {
			o := newOnce(t, memstore.New(), opts...)
			for range 3 {
				out, err := o.Do(t.Context(), charge("1"), withdraw)
				if err != error(busy) || out.Attempt != 0 {
					t.Errorf("got %+v and %v, want the error that was marked", out, err)
				}
			}
			first(t, o, charge("1"), "receipt", 1)
			replayed(t, o, charge("1"), "receipt", 1)
		})
	}
	// A withdrawn run does not change the attempts before it.
	sim(t, "attempts before", func(t *testing.T) {
		o := newOnce(t, memstore.New(), once.AtMostOnce())
		_, _ = o.Do(t.Context(), charge("1"), new(runs).failing(errors.New("declined")))
		_, _ = o.Do(t.Context(), charge("1"), withdraw)
		first(t, o, charge("1"), "receipt", 2)
	})
	// A run that is withdrawn in an outage is undone after the outage.
	sim(t, "withdrawn in an outage", func(t *testing.T) {
		store := newFlaky()
		o := newOnce(t, store, once.AtMostOnce(), wait(patience))
		_, err := o.Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
			store.set(true)
			return withdraw(ctx)
		})
		wantErr(t, err, core.ErrBusy)
		store.set(false)
		first(t, o, charge("1"), "receipt", 1)
	})
	// A run with an unknown outcome is not withdrawn.
	sim(t, "unknown outcome", func(t *testing.T) {
		o := newOnce(t, memstore.New(), once.AtMostOnce())
		_, err := o.Do(t.Context(), charge("1"), new(runs).failing(fmt.Errorf("%w: %w", once.Withdraw(busy), once.ErrIndeterminate)))
		wantErr(t, err, once.ErrIndeterminate)
		_, err = o.Do(t.Context(), charge("1"), withdraw)
		wantErr(t, err, once.ErrIndeterminate)
	})
	if once.Withdraw(nil) != nil {
		t.Error("no error is one")
	}
}
