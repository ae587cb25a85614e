package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
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

func sameSlot(name string, n int) (slot int, keys []string) {
	slot = testserver.Slot(keyOf(core.Key(name, "0")))
	for i := 0; len(keys) < n; i++ {
		if key := core.Key(name, fmt.Sprint(i)); testserver.Slot(keyOf(key)) == slot {
			keys = append(keys, key)
		}
	}
	return slot, keys
}

// TestRecordsInAMovingSlot begins, fails, finishes and replays runs while their slot is
// moving. No call fails, because a run needs only one key.
func TestRecordsInAMovingSlot(t *testing.T) {
	t.Parallel()
	cluster := testserver.StartCluster(t, true, testserver.NoFailover...)
	slot, keys := sameSlot("moving runs", 12)
	s := newStore(t, testclient.Cluster(t, cluster))
	for _, key := range keys[:9] {
		c := claimOf(key)
		acquire(t, s, begins(c, "begun"))
		release(t, s, saves(c, "failed", 1, false))
	}
	there := cluster.Nodes[0]
	if there == cluster.Master(slot) {
		there = cluster.Nodes[1]
	}
	m := cluster.BeginMigration(slot, there)
	m.MoveKeys(5)
	for i, key := range keys {
		c, again := claimOf(key), begins(claimOf(key), "again")
		again.Wait = true
		attempt, value := 2, "failed"
		if i >= 9 {
			attempt, value = 1, "begun"
		}
		wantRecord(t, acquire(t, s, begins(c, "begun")), value, attempt, false)
		_, err := s.Acquire(t.Context(), again)
		wantIs(t, "acquire", err, store.ErrBusy)
		for range 2 {
			release(t, s, saves(c, "answer", attempt, true))
		}
		wantRecord(t, acquire(t, s, again), "answer", attempt, true)
	}
	for m.MoveKeys(3) > 0 {
	}
	m.Finish()
	for i, key := range keys {
		attempt := 2
		if i >= 9 {
			attempt = 1
		}
		wantRecord(t, acquire(t, s, begins(claimOf(key), "again")), "answer", attempt, true)
	}
}

// TestMigration_KeyNotMoved checks that, during a migration, scripts write to the old
// master as long as the key has not moved. The key must exist there during the whole
// script, because a missing key would be written on the other server.
func TestMigration_KeyNotMoved(t *testing.T) {
	t.Parallel()
	cluster := testserver.StartCluster(t, true, testserver.NoFailover...)
	for form, claimed := range forms {
		t.Run(form, func(t *testing.T) {
			c := claimed()
			s, slot := newStore(t, testclient.Cluster(t, cluster)), testserver.Slot(stored(c))
			acquire(t, s, c)
			there := cluster.Nodes[0]
			if there == cluster.Master(slot) {
				there = cluster.Nodes[1]
			}
			m := cluster.BeginMigration(slot, there)
			inner, w := nested(c), claimOf(c.Key)
			w.Wait, w.Fair = true, true
			for range 2 {
				acquire(t, s, inner)
				busyWith(t, s, w)
				c.TTL *= 2
				if err := extend(s, c); err != nil {
					t.Fatalf("extend: %v", err)
				}
				wantIs(t, "release of an unknown lease", s.Release(t.Context(), claimOf(c.Key)), store.ErrLost)
				release(t, s, inner)
				inner = nested(c)
			}
			release(t, s, c)
			acquire(t, s, w)
			next := claimOf(c.Key)
			next.Wait, next.Fair = true, true
			busyWith(t, s, next)
			release(t, s, w)
			acquire(t, s, next)
			m.Finish()
			if err := extend(s, next); err != nil {
				t.Errorf("extend: %v", err)
			}
			wantIs(t, "extend", extend(s, w), store.ErrLost)
			release(t, s, next)
		})
	}
}

// TestSlotMigration moves a slot to another master and back, during operations on its
// keys (hazard 36).
func TestSlotMigration(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	cluster := testserver.StartCluster(t, true, testserver.NoFailover...)
	client := func() redis.UniversalClient { return testclient.Cluster(t, cluster) }
	for i, c := range []struct {
		name string
		opts []redisstore.Option
	}{
		{"slot moves to and fro", nil},
		{"slot moves with replicas", []redisstore.Option{redisstore.WithReplicas(1, time.Second)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			slot, keys := sameSlot(fmt.Sprint("moving", i), 14)
			l := startLoad(t, client, keys[:4], keys[4:], false, c.opts...)
			here := cluster.Master(slot)
			for range tally.Trials(50) {
				there := cluster.Nodes[0]
				if there == here {
					there = cluster.Nodes[1]
				}
				m := cluster.BeginMigration(slot, there)
				before := l.oracle.count()
				for m.MoveKeys(3) > 0 {
					// Some operations have to find keys on both masters.
					n := l.oracle.count()
					testserver.Eventually(t, 30*time.Second, "leases are taken in a slot that moves", func() bool {
						return l.oracle.count() >= n+5
					})
					if l.oracle.count() > before+100 {
						break // a continuous load need not be followed forever
					}
				}
				m.Finish()
				here, there = there, here
			}
			l.end()
			l.oracle.judge(t, 20*tally.Trials(50))
		})
	}
}

// TestMasters_NameEachOther hands over a slot. During the hand-over, its two masters
// can name each other. A call is sent to the named master repeatedly, for a moment. If
// that fails, the call has certainly changed nothing.
func TestMasters_NameEachOther(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	for i, c := range []struct {
		name string
		opts []redisstore.Option
	}{
		{"no replicas asked", nil},
		{"with replicas asked", []redisstore.Option{redisstore.WithReplicas(1, time.Second)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster := testserver.StartCluster(t, true, testserver.NoFailover...)
			slot, keys := sameSlot(fmt.Sprint("disowned", i), 1)
			there := cluster.Nodes[0]
			if there == cluster.Master(slot) {
				there = cluster.Nodes[1]
			}
			s := newStore(t, testclient.Cluster(t, cluster), c.opts...)
			refusals := func() (n int) {
				for _, node := range cluster.Nodes {
					for line := range strings.Lines(node.Do("INFO", "errorstats").(string)) {
						var at int
						_, _ = fmt.Sscanf(line, "errorstat_MOVED:count=%d", &at)
						n += at
					}
				}
				return n
			}
			lock := claimOf(keys[0])
			lock.Last = acquire(t, s, lock).Token
			release(t, s, lock)
			repair := cluster.Disown(slot, there)

			// On a busy machine a call can reach its limit of two seconds before it has
			// tried all servers.
			slow := func(start time.Time) bool { return time.Since(start) > 1500*time.Millisecond }
			var before int
			var err error
			for range 10 {
				before = refusals()
				start := time.Now()
				_, err = s.Acquire(t.Context(), claimOf(keys[0]))
				if slow(start) {
					continue
				}
				if err != nil && strings.Contains(err.Error(), "MOVED") {
					break
				}
				wantIs(t, "acquire", err, store.ErrUnavailable)
			}
			wantIs(t, "acquire", err, store.ErrUnavailable)
			if err == nil || !strings.Contains(err.Error(), "MOVED") {
				t.Errorf("%v does not say why", err)
			}
			if n := refusals() - before; n < 10 {
				t.Errorf("it was sent to %d masters, want it to be tried for longer", n)
			}

			before = refusals()
			acquired := make(chan error, 1)
			go func() {
				for end := time.Now().Add(testserver.Settled); ; {
					start := time.Now()
					_, err := s.Acquire(t.Context(), lock)
					if err == nil || time.Now().After(end) || !errors.Is(err, store.ErrUnavailable) && !slow(start) {
						acquired <- err
						return
					}
				}
			}()
			testserver.Eventually(t, soon, "a call is on its way", func() bool { return refusals() >= before+6 })
			repair()
			if err := <-acquired; err != nil {
				t.Errorf("acquire: %v", err)
			}
			release(t, s, lock)
		})
	}
}
