package redisstore_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestOnSentinel makes failovers that lose no write, so no two holders may exist. The
// cases run one after the other, because most of them change the master.
func TestOnSentinel(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	sentinel := testserver.StartSentinel(t)
	client := func() redis.UniversalClient { return testclient.Sentinel(t, sentinel) }
	t.Run("contract of stores", func(t *testing.T) {
		clients := []redis.UniversalClient{client(), client()}
		var n atomic.Uint32
		storetest.Run(t, storetest.Harness{
			New: func(t testing.TB) func() store.Store {
				return func() store.Store { return newStore(t, clients[n.Add(1)%2]) }
			},
			Unit: 300 * time.Millisecond, Without: []storetest.Feature{storetest.SameToken},
		})
	})
	t.Run("failover client with ReplicaOnly", func(t *testing.T) {
		s := newStore(t, testclient.Sentinel(t, sentinel, func(o *redis.FailoverOptions) { o.ReplicaOnly = true }))
		_, err := s.Acquire(t.Context(), claimed())
		wantIs(t, "acquire", err, store.ErrUnavailable)
		if err == nil || !strings.Contains(err.Error(), "READONLY") || !strings.Contains(err.Error(), "ReplicaOnly") {
			t.Errorf("acquire: got %v, want READONLY and the name of the option", err)
		}
		if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "the server is a slave: connect to the master") {
			t.Errorf("check: got %v, want the replica", err)
		}
	})
	t.Run("planned failover", func(t *testing.T) {
		l := startLoad(t, client, []string{"a", "b", "c"}, []string{"d", "e", "f"}, true)
		for range 2 {
			l.progress(20)
			sentinel.HandOver()
		}
		l.progress(20)
		l.end()
		l.oracle.judge(t, 60)
		if l.lost > 0 {
			t.Errorf("%d short leases were lost", l.lost)
		}
		t.Logf("%d acquires were refused", l.refused)
	})
	t.Run("old master learns of failover late", func(t *testing.T) {
		loneHolder(t, sentinel)
	})
	t.Run("subscription finds new master", func(t *testing.T) {
		w := newWatched(t, client, "subscription")
		if err := w.wakes(); err != nil {
			t.Fatal(err)
		}
		w.survives(func() { sentinel.HandOver() })
	})
	t.Run("dead master", func(t *testing.T) {
		old := sentinel.Master()
		survives(t, client, "dies", func() {
			awaitOffsets(t, old, sentinel.Replicas()...)
			old.Kill()
		}, func() { sentinel.AwaitFailover(old) })
		old.Restart("--replicaof", "127.0.0.1", strconv.Itoa(sentinel.Master().Port()))
		sentinel.AwaitOK()
	})
	t.Run("frozen master", func(t *testing.T) {
		old := sentinel.Master()
		survives(t, client, "freezes", func() {
			awaitOffsets(t, old, sentinel.Replicas()...)
			old.Pause()
		}, func() {
			sentinel.AwaitFailover(old)
			old.Resume() // it still believes that it is the master
		})
	})
	t.Run("dead master is known down", func(t *testing.T) {
		s := newStore(t, client())
		acquire(t, s, claimed())
		old := sentinel.Master()
		old.Kill()
		knew := false
		testserver.Eventually(t, testserver.Settled, "the new master grants", func() bool {
			_, err := s.Acquire(t.Context(), claimed())
			knew = knew || knownDown(err)
			return err == nil
		})
		if !knew {
			t.Error("test setup: expected an acquire that fails because the master is down, got none")
		}
		sentinel.AwaitFailover(old)
		old.Restart("--replicaof", "127.0.0.1", strconv.Itoa(sentinel.Master().Port()))
		sentinel.AwaitOK()
	})
	everyKeyExpires(t, sentinel.Master())
}

// loneHolder makes one process hold a key while SENTINEL FAILOVER promotes another
// master. The old master still accepts writes for some seconds. Its writes after the
// promotion are lost, but these are only extensions.
func loneHolder(t *testing.T, sentinel *testserver.Sentinel) {
	const ttl = 15 * time.Second
	o := newOracle()
	holder, rival := process(t, testclient.Sentinel(t, sentinel)), process(t, testclient.Sentinel(t, sentinel))
	lease, err := holder.Acquire(t.Context(), "lone", core.TTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	v := o.enter(lease)
	awaitOffsets(t, sentinel.Master(), sentinel.Replicas()...)
	var attempts atomic.Int32
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for v.believe() {
			select {
			case <-over:
				return
			default:
			}
			v.work(5 * time.Millisecond)
		}
		t.Errorf("the lease was lost: %v", context.Cause(lease.Context()))
	})
	wg.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			time.Sleep(5 * time.Millisecond)
			other, err := rival.TryAcquire(context.Background(), "lone", core.TTL(ttl))
			switch {
			case err == nil:
				w := o.enter(other)
				w.work(5 * time.Millisecond)
				_ = w.leave()
			case errors.Is(err, store.ErrBusy):
				attempts.Add(1)
			case !errors.Is(err, store.ErrUnavailable):
				t.Errorf("a rival's attempt: %v", err)
				return
			}
		}
	})
	func() {
		defer wg.Wait()
		defer close(over)
		sentinel.Failover()
		sentinel.AwaitOK()
	}()
	if err := lease.Extend(t.Context(), ttl); err != nil {
		t.Errorf("extend: %v", err)
	}
	if err := v.leave(); err != nil {
		t.Errorf("release: %v", err)
	}
	if n := attempts.Load(); n < 10 {
		t.Errorf("only %d rival attempts", n)
	}
	o.judge(t, 1)
}
