package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

func TestShortGrant(t *testing.T) {
	t.Parallel()
	sim(t, "a lease of a fixed time whose second call is not answered leaves nothing behind", func(t *testing.T) {
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

// Where waiters cannot be woken, the store knows of none.
func TestPassingOnWithoutWatches(t *testing.T) {
	t.Parallel()
	for _, hold := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond} {
		sim(t, fmt.Sprintf("another process that polls has its turn, with holds of %v", hold), func(t *testing.T) {
			l, store := setup(t)
			rival := newScripted(store.inner)
			for _, s := range []*scripted{store, rival} {
				s.setAll(slow(50*time.Microsecond, 50*time.Microsecond))
				s.setWatch(func(context.Context, int) (<-chan struct{}, error) { return nil, errBroken })
			}
			other := newLocker(t, rival)
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for ctx.Err() == nil {
						_ = l.Do(ctx, "order:1", func(context.Context) error {
							time.Sleep(hold)
							return nil
						})
					}
				})
			}
			for range 10 {
				time.Sleep(rand.N(20 * time.Millisecond))
				release(t, acquire(t, t.Context(), other, "order:1", core.Wait(2*time.Minute)))
			}
			stop()
			wg.Wait()
		})
	}
}

// shortly is a store whose grants last for a moment, as far as it says.
type shortly struct{ core.Store }

func (s *shortly) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	g.Valid = time.Second
	return g, err
}
