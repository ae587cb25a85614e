package zkstore_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestLeaderDies kills the leader of three servers. Meanwhile four Stores take turns at
// one key and hold six other keys. Each Store stands for a process. Each hold lasts, or
// its holder learns of the loss. No two Stores hold the first key at once, and its
// tokens grow.
func TestLeaderDies(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	const processes, holders = 4, 6
	ensemble := testserver.StartEnsemble(t, 0)
	var all []*core.Locker
	for range processes {
		s, _ := storeOn(t, session, ensemble.Addrs())
		all = append(all, lockerOn(t, s))
	}
	var held []*core.Lease
	for i := range holders {
		held = append(held, acquire(t, all[i%processes], "held"+strconv.Itoa(i)))
	}

	var inside, overlaps, grants, lost atomic.Int64
	var last atomic.Uint64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, l := range all {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				lease, err := l.Acquire(context.Background(), "turns", core.Fair(), core.Wait(patience))
				if errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrBusy) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) > 1 && lease.Context().Err() == nil {
					overlaps.Add(1)
				}
				if before := last.Swap(lease.Token()); before >= lease.Token() {
					t.Errorf("got token %d after %d", lease.Token(), before)
				}
				grants.Add(1)
				time.Sleep(5 * time.Millisecond)
				if lease.Context().Err() != nil {
					lost.Add(1)
				}
				inside.Add(-1)
				_ = lease.Release(context.Background()) // an unconfirmed release is cleaned up
			}
		})
	}
	more := func(n int64) {
		t.Helper()
		from := grants.Load()
		eventually(t, "processes take turns", func() bool { return grants.Load() >= from+n })
	}
	more(20)
	leader := ensemble.Leader()
	leader.Kill()
	more(20) // the remaining two servers still grant
	leader.Restart()
	more(20)
	close(stop)
	wg.Wait()
	if overlaps.Load() > 0 {
		t.Errorf("two were in %d times", overlaps.Load())
	}

	rival, conn := storeOn(t, session, ensemble.Addrs())
	kept := 0
	for i, lease := range held {
		c := exclusive("held" + strconv.Itoa(i))
		if lease.Context().Err() == nil {
			kept++
			busy(t, rival, c)
			if lease.Context().Err() == nil {
				if err := lease.Extend(t.Context(), time.Minute); err != nil {
					t.Errorf("lease %d: %v", i, err)
				}
			}
		}
	}
	t.Logf("%d grants, %d of %d leases kept, %d lost while inside", grants.Load(), kept, holders, lost.Load())
	if kept == 0 {
		t.Error("no lease outlived the leader, and a session is much longer than an election")
	}
	for _, lease := range held {
		_ = lease.Release(context.Background())
	}
	for i := range held {
		key := "held" + strconv.Itoa(i)
		eventually(t, key+" is free", func() bool { return len(places(t, conn, key)) == 0 })
	}
}

// TestMajority_Gone pauses two of three servers. The third server cannot grant, and its
// answers to reads prove nothing. So the holder learns of the loss in time.
func TestMajority_Gone(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	ensemble := testserver.StartEnsemble(t, 0)
	leader := ensemble.Leader()
	var follower *testserver.ZooKeeper
	for _, s := range ensemble.Servers {
		if s != leader {
			follower = s
		}
	}
	// The store uses only the third server. This server still answers reads without the
	// others.
	s, conn := storeOn(t, short, []string{follower.Addr})
	l := lockerOn(t, s)
	lease := acquire(t, l, "minority")
	for _, s := range ensemble.Servers {
		if s != follower {
			s.Pause()
		}
	}
	start := time.Now()
	inTime(t, lease, start)
	_, _, err := conn.Get("/lk1/minority")
	t.Logf("the follower's answer to a read by then: %v", err)
	if lease, err := l.TryAcquire(t.Context(), "other"); err == nil {
		t.Errorf("granted %v without a majority", lease.Key())
	}
	for _, s := range ensemble.Servers {
		if s != follower {
			s.Resume()
		}
	}
	again := reacquire(t, l, "minority")
	if again.Token() <= lease.Token() {
		t.Errorf("got token %d after %d", again.Token(), lease.Token())
	}
	release(t, again)
	eventually(t, "it is connected", func() bool { return conn.State() == zk.StateHasSession })
}
