package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// keysOf returns n keys on one master, whose names contain name.
func keysOf(t testing.TB, cluster *testserver.Cluster, master *testserver.Redis, name string, n int) []string {
	t.Helper()
	serves := cluster.Serves(master)
	var keys []string
	for i := 0; len(keys) < n; i++ {
		if i == 100_000 {
			t.Fatal("the master has no slots")
		}
		key := core.Key(name, fmt.Sprint(i))
		if serves(testserver.Slot(keyOf(key))) {
			keys = append(keys, key)
		}
	}
	return keys
}

// TestOnCluster shares one Cluster between cases that do not change it.
func TestOnCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("the cases on a Cluster take long")
	}
	t.Parallel()
	rounds := tally.Trials(100)
	cluster := testserver.StartCluster(t, true, testserver.NoFailover...)
	t.Run("all at once", func(t *testing.T) {
		// With a client for each store, the cases would dial thousands of times.
		clients := []redis.UniversalClient{testclient.Cluster(t, cluster), testclient.Cluster(t, cluster)}
		var n atomic.Uint32
		client := func() redis.UniversalClient { return clients[n.Add(1)%2] }
		t.Run("contract of stores", func(t *testing.T) {
			tally.ProofOrMatrix(t)
			t.Parallel()
			storetest.Run(t, storetest.Harness{
				New: func(t testing.TB) func() store.Store {
					return func() store.Store { return newStore(t, client()) }
				},
				Unit: 300 * time.Millisecond, Without: []storetest.Feature{storetest.SameToken},
			})
		})
		t.Run("contract with plain keys", func(t *testing.T) {
			tally.ProofOrMatrix(t)
			t.Parallel()
			storetest.Run(t, storetest.Harness{
				New: func(t testing.TB) func() store.Store {
					return func() store.Store {
						return byLease{newStore(t, client(), redisstore.WithPlainKeys(), redisstore.WithPrefix("plain:"))}
					}
				},
				Unit: 300 * time.Millisecond, Without: notPlain,
			})
		})
		t.Run("processes in order of arrival", func(t *testing.T) {
			t.Parallel()
			for i, master := range cluster.Nodes[:3] {
				inOrder(t, cluster, keysOf(t, cluster, master, fmt.Sprint("fair", i), 1)[0], rounds)
			}
		})
		t.Run("one lease across slots", func(t *testing.T) {
			t.Parallel()
			acrossSlots(t, cluster, rounds)
		})
		t.Run("wake-up across nodes", func(t *testing.T) {
			t.Parallel()
			acrossNodes(t, cluster, rounds)
		})
	})
	// hazard 37
	t.Run("no replica was asked", func(t *testing.T) {
		asked := func(s *testserver.Redis) bool {
			stats := s.Do("INFO", "commandstats").(string)
			return strings.Contains(stats, "cmdstat_eval") || strings.Contains(stats, "cmdstat_subscribe")
		}
		if !slices.ContainsFunc(cluster.Nodes[:3], asked) {
			t.Error("nor was any master")
		}
		for _, replica := range cluster.Nodes[3:] {
			if asked(replica) {
				t.Errorf("a replica was:\n%s", replica.Do("INFO", "commandstats"))
			}
		}
	})
	for _, master := range cluster.Nodes[:3] {
		everyKeyExpires(t, master)
	}
}

// inOrder makes one caller in each of some processes wait for key, one after the other.
// It checks that they get the key in that order.
func inOrder(t *testing.T, cluster *testserver.Cluster, key string, rounds int) {
	const processes = 4
	var lockers [processes]*core.Locker
	for i := range lockers {
		lockers[i] = process(t, testclient.Cluster(t, cluster))
	}
	o := newOracle()
	client := testclient.Cluster(t, cluster)
	for range rounds {
		lease, err := lockers[0].Acquire(t.Context(), key, core.Fair())
		if err != nil {
			t.Fatal(err)
		}
		v := o.enter(lease)
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i, l := range lockers {
			wg.Go(func() {
				lease, err := l.Acquire(t.Context(), key, core.Fair())
				if err != nil {
					t.Error(err)
					return
				}
				v := o.enter(lease)
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				if err := v.leave(); err != nil {
					t.Error(err)
				}
			})
			testserver.Eventually(t, 30*time.Second, "the waiter is in line", func() bool { return inLine(t, client, key) == i+1 })
		}
		if err := v.leave(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if !slices.IsSorted(order) || len(order) != processes {
			t.Errorf("processes came in as %v", order)
		}
	}
	o.judge(t, processes*rounds)
}

// acrossSlots makes two processes acquire keys of three masters: all three together,
// two of them, or only one.
func acrossSlots(t *testing.T, cluster *testserver.Cluster, rounds int) {
	var keys []string
	for _, master := range cluster.Nodes[:3] {
		keys = append(keys, keysOf(t, cluster, master, "account", 1)...)
	}
	o := newOracle()
	var wg sync.WaitGroup
	for range 2 {
		l := process(t, testclient.Cluster(t, cluster))
		for worker, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2}, {1}} {
			wg.Go(func() {
				var asked []string
				for _, i := range order {
					asked = append(asked, keys[i])
				}
				for range rounds {
					lease, err := l.Acquire(t.Context(), asked[0], core.Also(asked[1:]...), core.TTL(10*time.Second))
					if err != nil {
						t.Errorf("worker %d: %v", worker, err)
						return
					}
					for _, key := range asked {
						if lease.TokenOf(key) == 0 {
							t.Errorf("worker %d: a key has no token", worker)
						}
					}
					v := o.enter(lease, asked[1:]...)
					v.work(time.Millisecond)
					if err := v.leave(); err != nil {
						t.Errorf("worker %d: release: %v", worker, err)
					}
				}
			})
		}
	}
	wg.Wait()
	o.judge(t, 2*9*rounds)
}

// acrossNodes uses stores without a Locker, which do not poll. So only a message can
// wake a waiter.
func acrossNodes(t *testing.T, cluster *testserver.Cluster, rounds int) {
	own := redisstore.WithPrefix("across:")
	holder, waiter := newStore(t, testclient.Cluster(t, cluster), own), newStore(t, testclient.Cluster(t, cluster), own)
	crossed := 0
	for i, master := range cluster.Nodes[:3] {
		key := keysOf(t, cluster, master, fmt.Sprint("wake", i), 1)[0]
		for n := range rounds {
			c := store.Claim{Key: key, Weight: store.All, Limit: store.All, TTL: time.Minute}
			held, waiting := c, c
			held.Owner, held.Lease = fmt.Sprint("holder", n), fmt.Sprint("held", n)
			waiting.Owner, waiting.Lease, waiting.Wait = fmt.Sprint("waiter", n), fmt.Sprint("waiting", n), true
			if _, err := holder.Acquire(t.Context(), held); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			woken, err := waiter.Watch(ctx, waiting)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := waiter.Acquire(t.Context(), waiting); !errors.Is(err, store.ErrBusy) {
				t.Fatalf("got %v, want busy", err)
			}
			if n == 0 && len(master.Do("PUBSUB", "CHANNELS", "across:*").([]any)) == 0 {
				crossed++
			}
			if err := holder.Release(t.Context(), held); err != nil {
				t.Fatal(err)
			}
			select {
			case _, ok := <-woken:
				if !ok {
					t.Error("the watch broke")
				}
			case <-time.After(30 * time.Second):
				t.Fatal("nobody was woken")
			}
			cancel()
			if err := waiter.Release(t.Context(), waiting); err != nil && !errors.Is(err, store.ErrLost) {
				t.Fatal(err)
			}
		}
	}
	if crossed != 2 {
		t.Errorf("%d of 3 masters have no subscriber, want 2", crossed)
	}
}

func TestRefusedClients(t *testing.T) {
	t.Parallel()
	addrs := []string{"127.0.0.1:1"}
	// hazard 35
	t.Run("Ring", func(t *testing.T) {
		t.Parallel()
		refused(t, redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": addrs[0]}}))
	})
	// hazard 37
	for name, edit := range map[string]func(*redis.ClusterOptions){
		"ReadOnly":       func(o *redis.ClusterOptions) { o.ReadOnly = true },
		"RouteByLatency": func(o *redis.ClusterOptions) { o.RouteByLatency = true },
		"RouteRandomly":  func(o *redis.ClusterOptions) { o.RouteRandomly = true },
	} {
		t.Run("cluster client with "+name+"", func(t *testing.T) {
			t.Parallel()
			o := &redis.ClusterOptions{Addrs: addrs}
			edit(o)
			refused(t, redis.NewClusterClient(o))
		})
	}
	t.Run("failover client with random replicas", func(t *testing.T) {
		t.Parallel()
		refused(t, redis.NewFailoverClusterClient(&redis.FailoverOptions{
			MasterName: testserver.SentinelName, SentinelAddrs: addrs, RouteRandomly: true,
		}))
	})
}

func refused(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	defer client.Close()
	if _, err := redisstore.New(client); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("got %v, want %v", err, store.ErrInvalid)
	}
}
