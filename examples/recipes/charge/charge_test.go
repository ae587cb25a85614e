package charge_test

import (
	"context"
	"errors"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/examples/recipes/charge"
)

// bank charges once for each key.
type bank struct {
	lose  int // the number of replies that are lost, beginning with the first
	calls int
	taken map[string]int
}

func (b *bank) Charge(_ context.Context, key string, cents int) (string, error) {
	b.calls++
	if len(key) != 32 {
		return "", errors.New("the key does not have 32 characters")
	}
	if _, known := b.taken[key]; !known {
		b.taken[key] = cents
	}
	if b.calls <= b.lose {
		return "", errors.New("no reply")
	}
	return "receipt of " + key[:8], nil
}

func TestPay(t *testing.T) {
	t.Parallel()
	locks, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	runs, err := once.New(locks)
	if err != nil {
		t.Fatal(err)
	}
	b := &bank{lose: 2, taken: map[string]int{}}
	var receipts []string
	for range 5 {
		receipt, err := charge.Pay(t.Context(), runs, b, "ann", "k", 500)
		if (err == nil) != (b.calls == 3) {
			t.Errorf("got %q, %v after %d calls", receipt, err, b.calls)
		}
		receipts = append(receipts, receipt)
	}
	if b.calls != 3 || len(b.taken) != 1 || receipts[2] == "" || receipts[4] != receipts[2] {
		t.Errorf("%d calls, taken %v, receipts %q; want 3 calls and one charge", b.calls, b.taken, receipts)
	}
	if _, err := charge.Pay(t.Context(), runs, b, "ann", "k", 700); !errors.Is(err, once.ErrMismatch) {
		t.Errorf("another amount: got %v", err)
	}
	for _, other := range []string{"bob", "ann:k"} {
		if _, err := charge.Pay(t.Context(), runs, b, other, "k", 500); err != nil {
			t.Error(err)
		}
	}
	if len(b.taken) != 3 {
		t.Errorf("taken %v, want a charge for each account", b.taken)
	}
}
