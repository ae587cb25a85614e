package pgstore_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/pgstore/pgtest"
)

// Many take a key at the same moment, which has no row, a dead one, or one that
// is just deleted.
func TestRaces(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "serializable"} {
		server := start(t, "default_transaction_isolation = '"+level+"'")
		const many = 6
		stores := make([]*pgstore.Store, many)
		for i := range stores {
			stores[i] = newStore(t, pgtest.Pool(t, server.URL("pool_max_conns=2")))
		}
		stop := make(chan struct{})
		var sweeper sync.WaitGroup
		sweeper.Go(func() {
			pool := pgtest.Pool(t, server.URL("pool_max_conns=1"))
			for {
				select {
				case <-stop:
					return
				default:
					exec(t, pool, "BEGIN ISOLATION LEVEL READ COMMITTED; UPDATE lockkit.keys SET due = 0 WHERE key IN "+
						"(SELECT key FROM lockkit.keys WHERE until <= clock_timestamp() FOR UPDATE SKIP LOCKED); SELECT lockkit.sweep(100); COMMIT")
				}
			}
		})
		t.Run("one of them gets it, with a higher token than before, where transactions are "+level, func(t *testing.T) {
			var last uint64
			for round := range count(1000) {
				key := fmt.Sprintf("race:%d", round/10)
				if round%10 == 0 {
					last = 0
				}
				var all sync.WaitGroup
				var grants atomic.Int64
				begin := make(chan struct{})
				for _, s := range stores {
					all.Go(func() {
						<-begin
						c := exclusive(key)
						g, err := s.Acquire(t.Context(), c)
						switch {
						case errors.Is(err, core.ErrBusy):
						case err != nil:
							t.Errorf("acquire: %v", err)
						default:
							grants.Add(1)
							if g.Token <= last {
								t.Errorf("got token %d after %d", g.Token, last)
							}
							// Nobody else reads it before all have ended.
							defer func() { last = g.Token }()
						}
					})
				}
				close(begin)
				all.Wait()
				if n := grants.Load(); n != 1 {
					t.Fatalf("round %d: %d grants", round, n)
				}
				// The holder has died, and its time is over.
				server.Exec("UPDATE lockkit.keys k SET until = clock_timestamp(), holds = ARRAY(SELECT (h.lease, h.owner, h.weight, " +
					"clock_timestamp())::lockkit.hold FROM unnest(k.holds) h) WHERE key = '" + key + "'")
			}
		})
		close(stop)
		sweeper.Wait()
	}
}

// Who finds a key busy is told how many wait, so that many poll more seldom.
func TestWaitingIsTold(t *testing.T) {
	t.Parallel()
	s := newStore(t, pgtest.Pool(t, start(t).URL()))
	c := claimed()
	acquire(t, s, c)
	for i := range 30 {
		w := exclusive(c.Key)
		w.Wait, w.Fair = true, i%2 == 0
		_, err := s.Acquire(t.Context(), w)
		if busy, ok := errors.AsType[*core.BusyError](err); !ok || busy.Waiting != i+1 {
			t.Fatalf("got %#v, want busy with %d waiting", err, i+1)
		}
	}
}
