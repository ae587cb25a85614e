package hazards_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestQuorumClock checks that a quorum of five servers has one holder while a minority
// of their clocks is set forward (hazard 19). If three clocks are set forward, it
// expects two holders.
func TestQuorumClock(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	for _, c := range []struct {
		name  string
		ahead int
	}{
		{"one of five set forward", 1},
		{"two of five set forward", 2},
		{"limit of three set forward", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var overlaps, grants atomic.Int64
			t.Cleanup(func() {
				facts := tally.Facts{
					Part: "processes", Runs: count(30), Faults: map[string]int{"clock set forward": c.ahead * count(30)},
					Grants: int(grants.Load()), Violations: map[string]int{"overlaps": int(overlaps.Load())},
				}
				if c.ahead > 2 {
					facts.Part, facts.Violations, facts.Expected = "limits", nil, facts.Violations
				}
				tally.Note(t, facts)
				switch n := int(overlaps.Load()); {
				case t.Failed():
				case c.ahead <= 2 && n > 0:
					t.Errorf("%d overlaps", n)
				case c.ahead > 2 && n < count(30)/2:
					t.Errorf("%d overlaps; if this is prevented now, the documentation promises too little", n)
				}
			})
			trials(t, count(30), func(t *testing.T, n int) {
				var o oracle
				quorumClock(t, fmt.Sprintf("quorum:%d", n), c.ahead, &o)
				overlaps.Add(int64(len(o.verdict())))
				grants.Add(int64(o.len()))
			})
		})
	}
}

// quorumClock holds a key through one Locker for longer than the TTL, while another
// Locker tries to acquire the key. Meanwhile some clocks are set forward. ahead is the
// number of these clocks.
func quorumClock(t *testing.T, key string, ahead int, o *oracle) {
	const ttl = 6 * time.Second
	clock := testserver.NewClock(t, 1)
	var servers []*testserver.Redis
	for i := range 5 {
		if i < ahead {
			servers = append(servers, clock.StartRedis())
		} else {
			servers = append(servers, testserver.StartRedis(t))
		}
	}
	holder, rival := quorumOf(t, servers), quorumOf(t, servers)
	lease := acquire(t, holder, key, core.TTL(ttl))
	held := span{Key: key, Who: "holder", From: mono(), Token: 1}
	time.Sleep(rand.N(ttl / 3)) // at any phase of its extensions
	clock.Step(time.Minute)
	var wg sync.WaitGroup
	wg.Go(func() {
		for end := mono() + int64(patience); mono() < end; time.Sleep(20 * time.Millisecond) {
			next, err := rival.TryAcquire(context.Background(), key, core.TTL(ttl))
			if err != nil {
				continue
			}
			s := span{Key: key, Who: "rival", From: mono(), Token: 2}
			s.Until = guard(next, 20*time.Millisecond, func() {})
			o.add(s)
			release(t, next)
			return
		}
		t.Error("the rival was never granted the key")
	})
	held.Until = guard(lease, 3*ttl/2, func() {})
	if ahead <= 2 {
		wantHeld(t, lease)
		release(t, lease)
	} else {
		wantLost(t, lease)
		wantErr(t, "release of a lost lease", lease.Release(context.Background()), core.ErrLost)
	}
	o.add(held)
	wg.Wait()
}

// quorumOf returns a locker whose locks are on a majority of servers.
func quorumOf(t *testing.T, servers []*testserver.Redis) *core.Locker {
	t.Helper()
	var nodes []core.Store
	for _, server := range servers {
		store, err := redisstore.New(testclient.Redis(t, server.Addr))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		nodes = append(nodes, store)
	}
	// The servers are new and have never held a lock, so no quarantine is needed.
	quorum, err := redlock.New(nodes, redlock.WithQuarantine(0), redlock.WithNodeTimeout(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	l, err := core.New(quorum)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = l.Close(ctx)
		_ = quorum.Close()
	})
	testserver.Eventually(t, patience, "the nodes are fit", func() bool { return quorum.Check(context.Background()) == nil })
	return l
}
