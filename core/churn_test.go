package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
)

// TestChurn covers hazard 51 of PROOF.md.
func TestChurn(t *testing.T) {
	t.Parallel()
	// Cycles of acquire and release leave nothing behind, even with faults.
	sim(t, "cycles with faults", func(t *testing.T) {
		const workers = 20
		cycles := tally.AllTrials(1000)
		l, store := setup(t)
		faults := []fault{nil, nil, nil, loseRequest, loseReply, refuse, hangAfter}
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for i := range cycles {
					if w == 0 && i%10 == 0 {
						store.forget()
						store.setAll(faults[rand.N(len(faults))])
					}
					key := fmt.Sprint("order:", rand.N(2*workers))
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*time.Second))
					o := opts(core.TTL(time.Second))
					switch rand.N(5) {
					case 0:
						o = append(o, core.Shared())
					case 1:
						o = append(o, core.Also(fmt.Sprint("order:", rand.N(2*workers))))
					case 2:
						o = append(o, core.Wait(0))
					}
					if lease, err := l.Acquire(ctx, key, o...); err == nil {
						time.Sleep(rand.N(time.Second))
						if inner, err := l.TryAcquire(ctx, key, core.Shared()); err == nil {
							inner.Release(ctx)
						}
						lease.Release(ctx)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		store.setAll(nil)
		time.Sleep(time.Minute)
		if left := l.Left(); left != "" {
			t.Errorf("left is %s", left)
		}
		for i := range 2 * workers {
			wantFree(t, store.inner, fmt.Sprint("order:", i))
		}
		store.forget()
		time.Sleep(time.Hour)
		if n := store.count(); n != 0 {
			t.Errorf("%d calls in an idle hour", n)
		}
	})
}

func TestCycle(t *testing.T) { // not parallel, because it counts the allocations of all goroutines
	t.Run("cycle on a free key", func(t *testing.T) {
		store := &counting{Store: memStore()}
		l := newLocker(t, store)
		ctx := context.Background()
		cycle := func() {
			lease, err := l.Acquire(ctx, "order:1")
			if err != nil {
				t.Fatal(err)
			}
			lease.Release(ctx)
		}
		cycle()
		store.calls = 0
		allocs := testing.AllocsPerRun(1000, cycle)
		if store.calls != 2*1001 {
			t.Errorf("%d calls for 1001 cycles, want two each", store.calls)
		}
		if allocs > 40 {
			t.Errorf("%.0f allocations a cycle", allocs)
		}
	})
}

type counting struct {
	core.Store
	calls int
}

func (s *counting) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	s.calls++
	return s.Store.Acquire(ctx, c)
}

func (s *counting) Release(ctx context.Context, c store.Claim) error {
	s.calls++
	return s.Store.Release(ctx, c)
}
