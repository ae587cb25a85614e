package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A grant by message is short: it has to be extended.
func TestGrantsByMessage(t *testing.T) {
	t.Parallel()
	for name, o := range map[string][]core.AcquireOption{"": nil, "not ": opts(core.NoRenew())} {
		sim(t, "a lease that is "+name+"extended can "+name+"be granted by message", func(t *testing.T) {
			l, store := setup(t)
			served(t, l, store, o...)
			pushed, waited := false, false
			for _, c := range store.sent(opAcquire) {
				pushed, waited = pushed || c.claims[0].Push, waited || c.claims[0].Wait
			}
			if !waited || pushed != (o == nil) {
				t.Errorf("waiting %v, by message %v; want true, %v", waited, pushed, o == nil)
			}
		})
	}
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
