package redlock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestTokens_OnServers checks that tokens grow from grant to grant, while up to two
// of five servers are cut off. So consecutive grants usually come from different
// majorities. hazard 34
func TestTokens_OnServers(t *testing.T) {
	t.Parallel()
	var nodes []store.Store
	var proxies []*testserver.Proxy
	for range 5 {
		p := testserver.NewRedisProxy(t, testserver.StartRedis(t).Addr)
		proxies, nodes = append(proxies, p), append(nodes, redisNode(t, p.Addr))
	}
	s := fit(t, newStore(t, nodes, redlock.WithNodeTimeout(2*time.Second), redlock.WithFencing()))
	total, cuts := tally.Trials(1000), 0
	var last uint64
	var failure error
	defer func() {
		if t.Failed() {
			t.Logf("the last acquire that failed got %v", failure)
		}
	}()
	for i := range total {
		away := rand.Perm(5)[:rand.N(3)]
		for _, n := range away {
			proxies[n].Partition()
			cuts++
		}
		var c store.Claim
		var g store.Grant
		try := 0
		testserver.Eventually(t, patience, "a grant", func() (granted bool) {
			// A busy machine can need several attempts. A node to which a release of a
			// claim has had no answer does not get this claim again.
			try++
			c = claim(fmt.Sprint(i, "-", try))
			var err error
			if g, err = s.Acquire(t.Context(), c); err != nil {
				failure = err
				_ = s.Release(t.Context(), c)
			}
			return err == nil
		})
		if g.Token < last+store.TokenStep {
			t.Fatalf("grant %d, without nodes %v: token %d after %d", i, away, g.Token, last)
		}
		last = g.Token
		if err := s.Release(t.Context(), c); errors.Is(err, store.ErrLost) {
			t.Fatalf("grant %d, without nodes %v: release: %v", i, away, err)
		}
		for _, n := range away {
			proxies[n].Heal()
		}
		testserver.Eventually(t, patience, "no cleanup task is left", func() bool {
			_, tasks := s.Unsettled()
			return tasks == 0
		})
	}
	tally.Note(t, tally.Facts{
		Part: "processes", Grants: total, Faults: map[string]int{"servers cut off": cuts},
		Violations: map[string]int{"tokens back": 0},
	})
}
