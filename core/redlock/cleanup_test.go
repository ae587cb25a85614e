package redlock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// countedReleases counts the releases that a node gets.
type countedReleases struct {
	*mortal
	n atomic.Int64
}

func (c *countedReleases) Release(ctx context.Context, claim store.Claim) error {
	c.n.Add(1)
	return c.mortal.Release(ctx, claim)
}

// TestCleanup_NodeDown checks that a node that is down gets one try a pause, however many
// releases it has missed. When it is back, it gets all of them.
func TestCleanup_NodeDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		servers, nodes := mortals()
		counted := &countedReleases{mortal: servers[2]}
		nodes[2] = counted
		s := newStore(t, nodes)
		var held []store.Claim
		for i := range 200 {
			c := claim(fmt.Sprint("holder ", i))
			c.Key, c.TTL = fmt.Sprint("order:", i), time.Minute
			acquire(t, s, c)
			held = append(held, c)
		}
		synctest.Wait()
		servers[2].dead.Store(true)
		for _, c := range held {
			if err := s.Release(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		before := counted.n.Load()
		time.Sleep(10 * time.Second)
		if n := counted.n.Load() - before; n < 50 || n > 101 {
			t.Errorf("got %d releases in ten seconds, want about 100", n)
		}
		servers[2].dead.Store(false)
		time.Sleep(time.Second)
		if claims, tasks := s.Unsettled(); claims+tasks > 0 {
			t.Errorf("got %d claims and %d cleanup tasks that are left, want none", claims, tasks)
		}
		for _, c := range held {
			if state, err := servers[2].Look(t.Context(), c.Key); err != nil || len(state.Holds) > 0 {
				t.Errorf("got %v and %v at the node, want no hold", state.Holds, err)
			}
		}
	})
}
