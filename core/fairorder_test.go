package core_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
)

// TestAcquire_OrderWithoutWatch covers hazard 39.
func TestAcquire_OrderWithoutWatch(t *testing.T) {
	t.Parallel()
	const waiting = 12
	for name, of := range map[string]func(i int) []core.AcquireOption{
		"usual":        func(int) []core.AcquireOption { return nil },
		"fair":         func(int) []core.AcquireOption { return opts(core.Fair()) },
		"fair permits": func(i int) []core.AcquireOption { return opts(core.Fair(), core.Permits(1+i%3, 4)) },
		"fair with every third a reader": func(i int) []core.AcquireOption {
			if i%3 == 0 {
				return opts(core.Fair(), core.Shared())
			}
			return opts(core.Fair())
		},
	} {
		for trouble, failing := range map[string]int{"no watch": 1000, "watches after a while": 6} {
			sim(t, name+" "+trouble, func(t *testing.T) {
				for range tally.AllTrials(20) {
					l, s := setup(t)
					rival := newLocker(t, s.inner)
					inner := s.inner.(store.Watcher)
					s.setAll(jitter(2 * time.Millisecond))
					s.setWatch(func(ctx context.Context, n int) (<-chan struct{}, error) {
						if n <= failing {
							return nil, errBroken
						}
						return inner.Watch(ctx, s.sent(opWatch)[n-1].claims[0])
					})
					holder := acquire(t, t.Context(), rival, "order:1", of(2)...)
					var mu sync.Mutex
					var order []int
					var wg sync.WaitGroup
					for i := range waiting {
						wg.Go(func() {
							lease := acquire(t, t.Context(), l, "order:1", of(i)...)
							mu.Lock()
							order = append(order, i)
							mu.Unlock()
							time.Sleep(rand.N(30 * time.Millisecond))
							release(t, lease)
						})
						synctest.Wait()
					}
					time.Sleep(rand.N(5 * time.Second))
					release(t, holder)
					wg.Wait()
					if !slices.IsSorted(order) {
						t.Errorf("got order %v, want that of arrival", order)
					}
				}
			})
		}
	}
	sim(t, "every other process without watches", func(t *testing.T) {
		for range tally.AllTrials(20) {
			server := memStore()
			holder := acquire(t, t.Context(), newLocker(t, server), "order:1")
			var mu sync.Mutex
			var order []int
			var wg sync.WaitGroup
			for i := range waiting {
				s := newScripted(server)
				l := newLocker(t, s)
				if i%2 == 0 {
					s.setWatch(func(context.Context, int) (<-chan struct{}, error) { return nil, errBroken })
				}
				wg.Go(func() {
					lease := acquire(t, t.Context(), l, "order:1", core.Fair())
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					time.Sleep(rand.N(30 * time.Millisecond))
					release(t, lease)
				})
				synctest.Wait()
			}
			time.Sleep(rand.N(time.Minute))
			release(t, holder)
			wg.Wait()
			if !slices.IsSorted(order) {
				t.Errorf("got order %v, want that of arrival", order)
			}
		}
	})
}
