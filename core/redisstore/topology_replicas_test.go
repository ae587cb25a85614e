package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestReplicasAnywhere checks that the WAIT for replicas is sent to the key's master,
// on the connection that wrote (hazards 18 and 32).
func TestReplicasAnywhere(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	rounds := tally.Trials(100)
	t.Run("on a single server", func(t *testing.T) {
		t.Parallel()
		master := testserver.StartRedis(t)
		replica := replicaOf(t, master)
		w := &witnessed{t: t, rounds: rounds, client: testclient.Redis(t, master.Addr), exists: testclient.Redis(t, master.Addr)}
		w.seen(1, "single")
		replica.Pause()
		w.unseen(1, "single")
		replica.Resume()
		w.back(1, "single")
	})
	t.Run("behind Sentinel", func(t *testing.T) {
		t.Parallel()
		sentinel := testserver.StartSentinel(t)
		replicas := sentinel.Replicas()
		w := &witnessed{t: t, rounds: rounds, client: testclient.Sentinel(t, sentinel), exists: testclient.Redis(t, sentinel.Master().Addr)}
		w.seen(2, "both")
		replicas[0].Pause()
		w.back(1, "one of two")
		w.unseen(2, "one of two is not enough")
		replicas[1].Pause()
		w.unseen(1, "none")
		replicas[0].Resume()
		replicas[1].Resume()
		w.back(2, "both again")
	})
	t.Run("in a cluster", func(t *testing.T) {
		t.Parallel()
		cluster := testserver.StartCluster(t, true, testserver.NoFailover...)
		for i, master := range cluster.Nodes[:3] {
			name := fmt.Sprint("master", i)
			w := &witnessed{t: t, rounds: rounds, client: testclient.Cluster(t, cluster), exists: testclient.Cluster(t, cluster), keys: keysOf(t, cluster, master, name, 10)}
			w.seen(1, name)
			cluster.Nodes[3+i].Pause()
			w.unseen(1, name)
			for j, other := range cluster.Nodes[:3] {
				if j != i {
					v := &witnessed{t: t, rounds: rounds, client: w.client, exists: w.exists, keys: keysOf(t, cluster, other, name, 10)}
					v.seen(1, name)
				}
			}
			cluster.Nodes[3+i].Resume()
			w.back(1, name)
		}
	})
}

// witnessed acquires with WithReplicas.
type witnessed struct {
	t      *testing.T
	client redis.UniversalClient
	exists redis.UniversalClient // finds keys without the Store
	keys   []string
	rounds int
}

func (w *witnessed) claim(name string, i int) store.Claim {
	key := fmt.Sprint(name, i)
	if len(w.keys) > 0 {
		key = w.keys[i%len(w.keys)]
	}
	c := claimOf(key)
	c.TTL = time.Minute
	return c
}

// seen acquires grants that n replicas have received.
func (w *witnessed) seen(n int, name string) {
	w.t.Helper()
	s := newStore(w.t, w.client, redisstore.WithReplicas(n, 4*time.Second))
	for i := range 10 {
		c := w.claim(name, i)
		if _, err := s.Acquire(w.t.Context(), c); err != nil {
			w.t.Fatalf("%s: %v", name, err)
		}
		if err := s.Release(w.t.Context(), c); err != nil {
			w.t.Fatalf("%s: release: %v", name, err)
		}
	}
}

func (w *witnessed) back(n int, name string) {
	w.t.Helper()
	s := newStore(w.t, w.client, redisstore.WithReplicas(n, time.Second))
	testserver.Eventually(w.t, testserver.Settled, "replicas acknowledge", func() bool {
		c := w.claim(name, 0)
		_, err := s.Acquire(w.t.Context(), c)
		if err == nil {
			err = s.Release(w.t.Context(), c)
		}
		return err == nil
	})
	w.seen(n, name)
}

// unseen acquires on several connections at once while fewer than n replicas answer.
// Some of the connections have written before, and every replica has those writes. No
// claim may be granted, and none may leave a key.
func (w *witnessed) unseen(n int, name string) {
	w.t.Helper()
	s := newStore(w.t, w.client, redisstore.WithReplicas(n, 50*time.Millisecond))
	var wg sync.WaitGroup
	const side = 5
	for worker := range side {
		wg.Go(func() {
			for i := worker; i < w.rounds; i += side {
				c := w.claim(name, i)
				_, err := s.Acquire(w.t.Context(), c)
				if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "replicas have the grant") {
					w.t.Errorf("%s: got %v, want that too few replicas have the grant", name, err)
				}
				if n, err := w.exists.Exists(w.t.Context(), keyOf(c.Key)).Result(); n != 0 || err != nil {
					w.t.Errorf("%s: the key is there (%d, %v)", name, n, err)
				}
			}
		})
	}
	wg.Wait()
}
