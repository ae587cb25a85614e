package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
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

// TestSplitVoteAtSlowNodes checks that one of many concurrent claims gets a free key.
// The nodes answer at different speeds, and the last release has not reached the first
// node yet. A few votes may grant no claim, because a node can still have the last
// holder's claim, which is being released. hazard 54
func TestSplitVoteAtSlowNodes(t *testing.T) {
	t.Parallel()
	for _, r := range []split{
		{5, 8, 50 * time.Millisecond, 2500 * time.Microsecond, time.Minute},
		{5, 8, time.Second, 50 * time.Millisecond, time.Minute},
		{5, 8, 10 * time.Second, 100 * time.Millisecond, time.Minute},
		// The answers leave time to ask again although the node time-out is long.
		{3, 20, 50 * time.Millisecond, 2 * time.Millisecond, 200 * time.Millisecond},
		{3, 20, time.Second, 20 * time.Millisecond, 2 * time.Second},
		// A busy machine answers after several node time-outs.
		{3, 20, 50 * time.Millisecond, 40 * time.Millisecond, time.Minute},
		{3, 20, 50 * time.Millisecond, 100 * time.Millisecond, time.Minute},
		{3, 20, 50 * time.Millisecond, 400 * time.Millisecond, time.Minute},
	} {
		t.Run(fmt.Sprintf("%d claims %v of %v %v", r.claims, r.slowest, r.timeout, r.budget), func(t *testing.T) {
			t.Parallel()
			votes, none, open := max(20, tally.Trials(1000)), 0, 0
			for seed := range uint64(votes) {
				synctest.Test(t, func(t *testing.T) {
					granted, unknown := r.vote(t, seed)
					if open += unknown; !granted {
						none++
					}
				})
			}
			t.Logf("no claim was granted in %d of %d votes, and %d outcomes are unknown", none, votes, open)
			if none > max(3, votes/10) { // a smaller number is not significant
				t.Errorf("in %d of %d votes no claim was granted", none, votes)
			}
			if open > max(2, votes*r.claims/1000) {
				t.Errorf("%d of %d outcomes are unknown", open, votes*r.claims)
			}
		})
	}
}

// split is a vote of many claims at slow nodes.
type split struct {
	nodes, claims    int
	timeout, slowest time.Duration // a node's time-out, and the longest delay at the slowest node
	budget           time.Duration // the caller's time limit
}

// vote runs one vote. It reports whether a claim was granted, and returns the number of
// unknown outcomes.
func (r split) vote(t *testing.T, seed uint64) (granted bool, unknown int) {
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
	var stores []store.Store // the Stores of two processes
	for range 2 {
		stores = append(stores, newStore(t, nodes, redlock.WithNodeTimeout(r.timeout)))
	}
	long := func(name string) store.Claim {
		c := claim(name)
		c.TTL = time.Minute
		return c
	}
	acquireSoon(t, stores[0], long("before"))
	if err := stores[0].Release(t.Context(), long("before")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), r.budget)
	defer cancel()
	var grants, open atomic.Int32
	var all sync.WaitGroup
	for i := range r.claims {
		all.Go(func() {
			_, err := stores[i%2].Acquire(ctx, long(fmt.Sprint(i)))
			switch {
			case err == nil:
				grants.Add(1)
			case strings.Contains(err.Error(), "outcome unknown"):
				open.Add(1)
			case !errors.Is(err, store.ErrBusy):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := grants.Load(); n > 1 {
		t.Errorf("seed %d: %d of %d claims were granted", seed, n, r.claims)
	}
	return grants.Load() == 1, int(open.Load())
}
