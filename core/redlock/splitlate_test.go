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
	for _, r := range []split{
		{5, 8, 50 * time.Millisecond, 2500 * time.Microsecond},
		{5, 8, time.Second, 50 * time.Millisecond},
		{5, 8, 10 * time.Second, 100 * time.Millisecond},
		// A busy machine answers after several of a node's time-outs.
		{3, 20, 50 * time.Millisecond, 40 * time.Millisecond},
		{3, 20, 50 * time.Millisecond, 100 * time.Millisecond},
		{3, 20, 50 * time.Millisecond, 400 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%d claims, %v of up to %v", r.claims, r.slowest, r.timeout), func(t *testing.T) {
			t.Parallel()
			votes, none := tally.Trials(1000), 0
			for seed := range uint64(votes) {
				synctest.Test(t, func(t *testing.T) {
					if !r.granted(t, seed) {
						none++
					}
				})
			}
			t.Logf("none in %d of %d", none, votes)
			if none > max(2, votes/25) { // so few votes are no measure
				t.Errorf("in %d of %d votes no claim was granted", none, votes)
			}
		})
	}
}

// split is a vote of many claims at slow nodes.
type split struct {
	nodes, claims    int
	timeout, slowest time.Duration // of a node; the longest way of a call at the slowest node
}

// granted reports whether a claim was granted.
func (r split) granted(t *testing.T, seed uint64) bool {
	nodes := memstores(r.nodes)
	for i, n := range nodes {
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		slowest := 1 + random.Int64N(int64(r.slowest))
		pace := faultsOf(t, func() storetest.Fault {
			mu.Lock()
			defer mu.Unlock()
			return storetest.Fault{Delay: time.Duration(random.Int64N(slowest)), ReplyDelay: time.Duration(random.Int64N(slowest))}
		}, storetest.OpAcquire)
		late := new(storetest.Faults)
		late.Hook(func(op storetest.Op, claims []store.Claim) storetest.Fault {
			if i == 0 && op == storetest.OpRelease && claims[0].Lease == "before" {
				return storetest.Fault{Delay: r.timeout / 3}
			}
			return storetest.Fault{}
		})
		t.Cleanup(late.Wait)
		nodes[i] = storetest.Faulty(storetest.Faulty(n, late), pace)
	}
	var stores []store.Store // of two processes
	for range 2 {
		stores = append(stores, newStore(t, nodes, redlock.WithNodeTimeout(r.timeout)))
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
	for i := range r.claims {
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
		t.Errorf("seed %d: %d of %d claims were granted", seed, n, r.claims)
	}
	return granted.Load() == 1
}
