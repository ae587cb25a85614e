package pgstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestRaces makes several Stores acquire a key at the same moment. The key has no row,
// an expired row, or a row that is being deleted. Half of the Stores have transactions
// with one snapshot by default.
func TestRaces(t *testing.T) {
	server := database(t)
	const many = 6
	stores := make([]*pgstore.Store, many)
	for i := range stores {
		level := []string{"", "&options=-c%20default_transaction_isolation%3Dserializable"}[i%2]
		stores[i] = newStore(t, testclient.Postgres(t, server.URL("pool_max_conns=2"+level)))
	}
	pool := testclient.Postgres(t, server.URL("pool_max_conns=2"))
	stop := make(chan struct{})
	var sweeper sync.WaitGroup
	sweeper.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(rand.N(2 * time.Millisecond)):
				exec(t, pool, sweepAll)
			}
		}
	})
	// In each round one Store is granted the key, with a higher token than in the key's
	// previous round.
	t.Run("one grant", func(t *testing.T) {
		var last, swept int64
		for round := range tally.Trials(1000) {
			key := fmt.Sprintf("race:%d", round/10)
			if round%10 == 0 {
				last = 0
			}
			var grants, token atomic.Int64
			var all sync.WaitGroup
			begin := make(chan struct{})
			for _, s := range stores {
				all.Go(func() {
					<-begin
					c := exclusive(key)
					var g store.Grant
					err := unlocked(func() (err error) {
						g, err = s.Acquire(t.Context(), c)
						return err
					})
					switch {
					case errors.Is(err, store.ErrBusy):
					case err != nil:
						t.Errorf("acquire: %v", err)
					default:
						grants.Add(1)
						token.Store(int64(g.Token))
					}
				})
			}
			close(begin)
			all.Wait()
			if n := grants.Load(); n != 1 {
				t.Fatalf("round %d: %d grants", round, n)
			}
			if token.Load() <= last {
				t.Fatalf("round %d: got token %d after %d", round, token.Load(), last)
			}
			last = token.Load()
			// The holder has died, and its hold has expired.
			exec(t, pool, "UPDATE lockkit.locks SET until = "+micros+" WHERE name = '"+key+"'")
			var row int64
			if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM lockkit.locks WHERE name = $1", []byte(key)).Scan(&row); err != nil {
				t.Fatal(err)
			}
			swept += 1 - row
		}
		t.Logf("%d rows were deleted at once", swept)
	})
	close(stop)
	sweeper.Wait()
}
