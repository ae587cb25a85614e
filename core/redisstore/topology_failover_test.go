package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestClusterFailover makes failovers that lose no write, so no two holders may exist.
func TestClusterFailover(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	// If one master is down, the others continue.
	cluster := testserver.StartCluster(t, true, "--cluster-require-full-coverage", "no")
	client := func() redis.UniversalClient { return testclient.Cluster(t, cluster) }
	// hazard 24
	t.Run("planned failover", func(t *testing.T) {
		// This server must not be killed for the next 16 seconds. In Redis 7.0, a
		// replica that must replace its master within two node timeouts of its own last
		// election counts that election's votes again. The others never accept it.
		slot, keys := sameSlot("planned failover", 6)
		if slot < firstSlots[2] {
			t.Fatalf("slot %d is on a server that the next cases kill", slot)
		}
		l := startLoad(t, client, keys[:3], keys[3:], true)
		for range 3 {
			old := cluster.Master(slot)
			var replica *testserver.Redis
			testserver.Eventually(t, testserver.Settled, "there is a replica in step", func() bool {
				replica = cluster.Replica(old)
				return replica != nil && replica.Field("replication", "master_link_status") == "up"
			})
			l.progress(20)
			cluster.Failover(replica)
		}
		l.progress(20)
		l.end()
		l.oracle.judge(t, 100)
		if l.lost > 0 {
			t.Errorf("%d short leases were lost", l.lost)
		}
		t.Logf("%d acquires were refused", l.refused)
	})
	for i, how := range []struct {
		name string
		down func(*testserver.Redis)
	}{
		{"dead master", (*testserver.Redis).Kill},
		{"frozen master", (*testserver.Redis).Pause},
	} {
		t.Run(how.name, func(t *testing.T) {
			master := cluster.Master(firstSlots[i])
			key := keysOf(t, cluster, master, fmt.Sprint("down", i), 1)[0]
			survives(t, client, key, func() {
				awaitOffsets(t, master, cluster.Replica(master))
				how.down(master)
			}, func() {
				cluster.AwaitSuccessor(firstSlots[i], master)
				if i == 1 {
					master.Resume() // for a moment it still believes that it is the master
				}
			})
		})
	}
	t.Run("dead node with a subscription", func(t *testing.T) {
		master := cluster.Master(firstSlots[2])
		key := keysOf(t, cluster, cluster.Master(firstSlots[0]), "other", 1)[0]
		// The node of the subscription is random.
		var w *watched
		testserver.Eventually(t, time.Minute, "a subscription is where it should be", func() bool {
			w = newWatched(t, client, key)
			return w.wakes() == nil && len(master.Do("PUBSUB", "CHANNELS", w.prefix+"*").([]any)) > 0
		})
		w.survives(func() {
			master.Kill()
			cluster.AwaitSuccessor(firstSlots[2], master)
		})
	})
}

// firstSlots contains one slot for each of a Cluster's three masters.
var firstSlots = [3]int{0, 6000, 12000}

// awaitOffsets waits until the replicas have all writes of their master.
func awaitOffsets(t testing.TB, master *testserver.Redis, replicas ...*testserver.Redis) {
	t.Helper()
	testserver.Eventually(t, testserver.Settled, "the replicas have everything", func() bool {
		end := master.Field("replication", "master_repl_offset")
		for _, r := range replicas {
			if r.Field("replication", "slave_repl_offset") != end {
				return false
			}
		}
		return true
	})
}

// survives makes one process hold key and others wait for it, while the key's server is
// replaced by another. The holder keeps its lease. Every waiter gets its own lease,
// even if the store is unavailable to it at first.
func survives(t *testing.T, client func() redis.UniversalClient, key string, down, back func()) {
	t.Helper()
	const ttl = time.Minute // a busy Cluster can need most of this time for a new master
	o, asking := newOracle(), client()
	lease, err := process(t, client()).Acquire(t.Context(), key, core.TTL(ttl), core.Fair())
	if err != nil {
		t.Fatal(err)
	}
	v := o.enter(lease)
	w := &waiters{t: t, oracle: o, key: key, ttl: ttl}
	for range 3 {
		p := process(t, client())
		w.start(p)
		w.start(p)
	}
	testserver.Eventually(t, 30*time.Second, "three processes wait", func() bool { return inLine(t, asking, key) == 3 })
	before := lease.Deadline()
	down()
	back()
	// An extension after the failover shows that the new master has the lease.
	testserver.Eventually(t, 90*time.Second, "the lease is extended", func() bool {
		v.believe()
		return lease.Deadline().After(before.Add(ttl / 4))
	})
	if !v.believe() {
		t.Error("the lease was lost")
	}
	if err := v.leave(); err != nil {
		t.Errorf("release: %v", err)
	}
	w.all.Wait()
	o.judge(t, 7)
	t.Logf("%d times the store was unavailable to a waiter", w.refused.Load())
}
