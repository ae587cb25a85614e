package core_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

func TestParked(t *testing.T) {
	t.Parallel()
	sim(t, "who holds for a fixed time and is not answered the second time leaves nothing behind", func(t *testing.T) {
		l, store := setup(t)
		short := &shortly{Store: store.inner}
		store.inner = short
		for range 2 {
			store.set(func(ctx context.Context, n int, do func() error) error {
				if n > 1 {
					return fmt.Errorf("%w: connection refused", core.ErrUnavailable)
				}
				return do()
			}, opAcquire)
			_, err := l.TryAcquire(t.Context(), "order:1", core.NoRenew())
			wantErr(t, err, core.ErrUnavailable)
			store.set(nil, opAcquire)
			time.Sleep(3 * time.Second)
			wantFree(t, store.inner, "order:1")
		}
	})
}

// shortly is a store whose grants last for a moment, as far as it says.
type shortly struct{ core.Store }

func (s *shortly) Acquire(ctx context.Context, c core.Claim) (core.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	g.Valid = time.Second
	return g, err
}
