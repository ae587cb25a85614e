package redisstore_test

import (
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestRecordReplicas(t *testing.T) {
	t.Parallel()
	master := testserver.StartRedis(t)
	replica := replicaOf(t, master)
	s := newStore(t, testclient.Redis(t, master.Addr), redisstore.WithReplicas(1, 2*time.Second))
	hasty := newStore(t, testclient.Redis(t, master.Addr), redisstore.WithReplicas(1, 100*time.Millisecond))
	direct := newStore(t, testclient.Redis(t, master.Addr))
	t.Run("replica has the begun run", func(t *testing.T) {
		c := begins(claimed(), "begun")
		wantRecord(t, acquire(t, s, c), "begun", 1, false)
		if n := testclient.Redis(t, replica.Addr).Exists(t.Context(), stored(c)).Val(); n != 1 {
			t.Error("the replica does not have it")
		}
		release(t, s, saves(c, "answer", 1, true))
		wantRecord(t, acquire(t, s, begins(claimOf(c.Key), "again")), "answer", 1, true)
	})
	t.Run("released run does not count", func(t *testing.T) { // hazard 18
		first, second, third := claimed(), claimed(), claimed()
		for _, c := range []store.Claim{second, third} {
			acquire(t, direct, begins(c, "begun"))
			release(t, direct, saves(c, "failed", 1, false))
		}
		acquire(t, direct, begins(claimOf(third.Key), "begun"))
		replica.Pause()
		for _, c := range []store.Claim{first, second} {
			for range 3 {
				_, err := hasty.Acquire(t.Context(), begins(claimOf(c.Key), "never"))
				wantIs(t, "acquire", err, store.ErrUnavailable)
			}
		}
		_, err := hasty.Acquire(t.Context(), begins(claimOf(third.Key), "never"))
		wantIs(t, "acquire", err, store.ErrBusy)
		replica.Resume()
		wantRecord(t, acquire(t, s, begins(claimOf(first.Key), "begun")), "begun", 1, false)
		wantRecord(t, acquire(t, s, begins(claimOf(second.Key), "begun")), "failed", 2, false)
	})
	t.Run("replica has the saved answer", func(t *testing.T) {
		asks := testclient.Redis(t, replica.Addr)
		for range 20 {
			c := begins(claimed(), "begun")
			acquire(t, s, c)
			release(t, s, saves(c, "answer", 1, true))
			if f, err := testclient.Fields(t.Context(), asks, stored(c)); f["v"] != "answer" {
				t.Fatalf("the replica has %q, %v", f, err)
			}
		}
		c := begins(claimed(), "begun")
		acquire(t, s, c)
		replica.Pause()
		for range 2 {
			unknown(t, "release", hasty.Release(t.Context(), saves(c, "answer", 1, true)))
		}
		replica.Resume()
		release(t, s, saves(c, "answer", 1, true))
		if f, err := testclient.Fields(t.Context(), asks, stored(c)); f["v"] != "answer" {
			t.Errorf("the replica has %q, %v", f, err)
		}
		wantIs(t, "release", s.Release(t.Context(), saves(c, "another", 1, true)), store.ErrLost)
	})
	t.Run("replay needs no replica", func(t *testing.T) {
		c := begins(claimed(), "begun")
		acquire(t, s, c)
		release(t, s, saves(c, "answer", 1, true))
		replica.Pause()
		defer replica.Resume()
		wantRecord(t, acquire(t, hasty, begins(claimOf(c.Key), "again")), "answer", 1, true)
	})
	everyKeyExpires(t, master)
}
