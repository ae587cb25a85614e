package redisstore_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// pair is a master and a replica that takes over without the master's last writes.
// After that, clients connect to the replica.
type pair struct {
	client  func() redis.UniversalClient
	cut     func() // stops replication to the replica
	promote func() // kills the master and promotes the replica
	holds   func(key string) bool
}

// register is a resource that refuses tokens older than the newest one that it has
// seen.
type register struct{ newest uint64 }

func (r *register) write(token uint64) bool {
	if token < r.newest {
		return false
	}
	r.newest = token
	return true
}

// TestFailover_LosesTheKey shows the limit of a server with asynchronous replicas
// (hazard 31). It expects two holders, who differ only by their tokens. If replicas
// have to acknowledge, the first of the two is not granted.
func TestFailover_LosesTheKey(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) pair{
		"promoted by hand": byHand, "promoted by Sentinel": bySentinel, "promoted in a cluster": inCluster,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 1 // a failover takes seconds
			if name == "promoted by hand" {
				n = tally.Trials(30)
			}
			t.Run("limit of two holders", func(t *testing.T) {
				for range n {
					twoHolders(t, start(t))
				}
			})
			t.Run("with acknowledgement", func(t *testing.T) {
				for range n {
					oneHolder(t, start(t))
				}
			})
		})
	}
}

func twoHolders(t *testing.T, p pair) {
	t.Helper()
	first, second := process(t, p.client()), process(t, p.client())
	warm(t, first, second)
	p.cut()
	old, err := first.Acquire(t.Context(), "order:1", core.TTL(2*time.Minute), core.Fenced())
	if err != nil {
		t.Fatal(err)
	}
	o := newOracle()
	v := o.enter(old)
	p.promote()
	w := o.enter(succeed(t, second))
	if !v.believe() || !w.believe() {
		t.Error("there are no two holders; if this is prevented now, the documentation promises too little")
	}
	var r register
	if !r.write(w.lease.Token()) {
		t.Error("the register refuses the new holder")
	}
	if r.write(v.lease.Token()) {
		t.Error("the register takes the write of the old holder")
	}
	v.believe()
	if err := w.leave(); err != nil {
		t.Errorf("release: %v", err)
	}
	// The old holder's client can still dial the old master, which is down.
	if err := v.leave(); !errors.Is(err, store.ErrLost) && !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the old holder's release: got %v, want %v", err, store.ErrLost)
	}
	n := len(o.violations())
	if n == 0 {
		t.Error("the oracle saw nothing")
	}
	tally.Note(t, tally.Facts{
		Part: "limits", Runs: 1, Faults: map[string]int{"failover that lost the key": 1}, Grants: 2,
		Violations: map[string]int{"stale writes": 0}, Expected: map[string]int{"overlaps": n},
	})
}

func oneHolder(t *testing.T, p pair) {
	t.Helper()
	acked := redisstore.WithReplicas(1, 200*time.Millisecond)
	first, second := process(t, p.client(), acked), process(t, p.client())
	warm(t, first, second)
	p.cut()
	_, err := first.Acquire(t.Context(), "order:1", core.TTL(2*time.Minute))
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "0 of 1 replicas") {
		t.Errorf("got %v, want that no replica has the grant", err)
	}
	if p.holds("order:1") {
		t.Error("the refused grant is still there")
	}
	p.promote()
	lease := succeed(t, second)
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
}

// warm makes the clients find their servers. A new client can first connect to a frozen
// server, for as long as its time-outs allow. A new replica can be slow.
func warm(t *testing.T, all ...*core.Locker) {
	t.Helper()
	for _, p := range all {
		lease, err := p.Acquire(t.Context(), "warm")
		for end := time.Now().Add(time.Minute); errors.Is(err, store.ErrUnavailable) && time.Now().Before(end); {
			lease, err = p.Acquire(t.Context(), "warm")
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// succeed acquires from the new master as soon as it answers.
func succeed(t *testing.T, p *core.Locker) *core.Lease {
	t.Helper()
	for end := time.Now().Add(90 * time.Second); ; {
		lease, err := p.Acquire(t.Context(), "order:1", core.TTL(2*time.Minute), core.Fenced(), core.Wait(30*time.Second))
		if err == nil {
			return lease
		}
		if !errors.Is(err, store.ErrUnavailable) || time.Now().After(end) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func has(server *testserver.Redis) func(key string) bool {
	return func(key string) bool { return server.Do("EXISTS", keyOf(key)) != int64(0) }
}

func byHand(t *testing.T) pair {
	master := testserver.StartRedis(t)
	replica := replicaOf(t, master)
	var current atomic.Pointer[testserver.Redis]
	current.Store(master)
	return pair{
		client: func() redis.UniversalClient {
			return testclient.Redis(t, master.Addr, func(o *redis.Options) {
				o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, current.Load().Addr)
				}
			})
		},
		cut: func() { testserver.CutReplicas(master, replica) },
		promote: func() {
			master.Kill()
			replica.Resume()
			replica.Do("REPLICAOF", "NO", "ONE")
			current.Store(replica)
		},
		holds: has(master),
	}
}

func bySentinel(t *testing.T) pair {
	sentinel := testserver.StartSentinel(t)
	master, replicas := sentinel.Master(), sentinel.Replicas()
	return pair{
		client: func() redis.UniversalClient { return testclient.Sentinel(t, sentinel) },
		cut:    func() { testserver.CutReplicas(master, replicas...) },
		promote: func() {
			master.Kill()
			for _, r := range replicas {
				r.Resume()
			}
			sentinel.AwaitFailover(master)
		},
		holds: has(master),
	}
}

func inCluster(t *testing.T) pair {
	cluster := testserver.StartCluster(t, true, testserver.NoFailover...)
	master := cluster.Master(testserver.Slot(keyOf("order:1")))
	replica := cluster.Replica(master)
	return pair{
		client: func() redis.UniversalClient { return testclient.Cluster(t, cluster) },
		cut:    func() { testserver.CutReplicas(master, replica) },
		promote: func() {
			master.Kill()
			replica.Resume()
			cluster.Takeover(replica)
		},
		holds: has(master),
	}
}
