package redlock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
)

// TestSplitVoteAtSlowNodes: if many claims ask for a free key at once, one of them gets
// it. The nodes answer at different speeds, and the last release has not reached the
// first node yet. In a few votes no claim is granted: all may meet the last claim that
// is still being released. hazard 54
func TestSplitVoteAtSlowNodes(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{50 * time.Millisecond, time.Second, 10 * time.Second} {
		t.Run(fmt.Sprint(timeout, " for a node"), func(t *testing.T) {
			t.Parallel()
			votes, none := tally.Trials(1000), 0
			for seed := range uint64(votes) {
				synctest.Test(t, func(t *testing.T) {
					if !splitVoteAtSlowNodes(t, timeout, seed) {
						none++
					}
				})
			}
			if none > max(2, votes/25) { // so few votes are no measure
				t.Errorf("in %d of %d votes no claim was granted", none, votes)
			}
		})
	}
}

// splitVoteAtSlowNodes reports whether a claim was granted.
func splitVoteAtSlowNodes(t *testing.T, timeout time.Duration, seed uint64) bool {
	nodes := memstores(5)
	for i, n := range nodes {
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		slowest := 1 + random.Int64N(int64(min(timeout/20, 100*time.Millisecond)))
		pace := faultsOf(t, func() storetest.Fault {
			mu.Lock()
			defer mu.Unlock()
			return storetest.Fault{Delay: time.Duration(random.Int64N(slowest)), ReplyDelay: time.Duration(random.Int64N(slowest))}
		}, storetest.OpAcquire)
		late := new(storetest.Faults)
		late.Hook(func(op storetest.Op, claims []store.Claim) storetest.Fault {
			if i == 0 && op == storetest.OpRelease && claims[0].Lease == "before" {
				return storetest.Fault{Delay: timeout / 3}
			}
			return storetest.Fault{}
		})
		t.Cleanup(late.Wait)
		nodes[i] = storetest.Faulty(storetest.Faulty(n, late), pace)
	}
	var stores []store.Store // of two processes
	for range 2 {
		stores = append(stores, newStore(t, nodes, redlock.WithNodeTimeout(timeout)))
	}
	long := func(name string) store.Claim {
		c := claim(name)
		c.TTL = time.Minute
		return c
	}
	acquire(t, stores[0], long("before"))
	if err := stores[0].Release(t.Context(), long("before")); err != nil {
		t.Fatal(err)
	}
	var granted atomic.Int32
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			_, err := stores[i%2].Acquire(t.Context(), long(fmt.Sprint(i)))
			if err == nil {
				granted.Add(1)
			} else if !errors.Is(err, store.ErrBusy) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := granted.Load(); n > 1 {
		t.Errorf("seed %d: %d of 8 claims were granted", seed, n)
	}
	return granted.Load() == 1
}
