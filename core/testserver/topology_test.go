package testserver_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestSlot(t *testing.T) {
	t.Parallel()
	cluster := testserver.StartCluster(t, false)
	for _, key := range []string{"", "a", "order:42", "lk2:{order:42}", "{}a", "a{}b{c}", "{a", "a{b}c", "日本"} {
		if want := cluster.Nodes[0].Do("CLUSTER", "KEYSLOT", key); want != int64(testserver.Slot(key)) {
			t.Errorf("%q is in slot %d, want %v", key, testserver.Slot(key), want)
		}
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := testserver.StartCluster(t, true)
	client := testclient.Cluster(t, cluster)
	ctx := t.Context()
	const tag = "{a}"
	slot := testserver.Slot(tag)
	old := cluster.Master(slot)
	other := cluster.Nodes[0]
	if old == other {
		other = cluster.Nodes[1]
	}
	for i := range 20 {
		if err := client.Set(ctx, fmt.Sprint(tag, i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		for i := range 20 {
			if v, err := client.Get(ctx, fmt.Sprint(tag, i)).Int(); v != i || err != nil {
				t.Fatalf("%s: key %d is %v, %v", when, i, v, err)
			}
		}
	}
	m := cluster.BeginMigration(slot, other)
	if m.MoveKeys(7) != 7 || old.KeysIn(slot) != 13 || other.KeysIn(slot) != 7 {
		t.Fatal("7 of 20 keys did not move")
	}
	check("in the middle of a migration")
	m.Finish()
	if cluster.Master(slot) != other || old.KeysIn(slot) != 0 {
		t.Fatal("the slot did not move")
	}
	check("after a migration")
	cluster.Migrate(slot, old)
	check("after a migration back")

	replica := cluster.Replica(old)
	cluster.Failover(replica)
	if cluster.Master(slot) != replica {
		t.Fatal("the replica is no master")
	}
	check("after a planned failover")

	testserver.Eventually(t, testserver.Settled, "the old master is a replica in step", func() bool {
		return cluster.Replica(replica) == old && old.Field("replication", "master_link_status") == "up"
	})
	testserver.CutReplicas(replica, old)
	if err := client.Set(ctx, tag, "lost", 0).Err(); err != nil {
		t.Fatal(err)
	}
	replica.Kill()
	old.Resume()
	cluster.Takeover(old)
	client.ReloadState(ctx) // go-redis looks for another master only once a minute
	testserver.Eventually(t, testserver.Settled, "the client knows the new master", func() bool {
		return client.Get(ctx, tag+"0").Err() == nil
	})
	check("after a takeover")
	if v, err := client.Get(ctx, tag).Result(); !errors.Is(err, redis.Nil) {
		t.Fatalf("a write that no replica saw is there: %q, %v", v, err)
	}
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	s := testserver.StartSentinel(t)
	client := testclient.Sentinel(t, s)
	ctx := t.Context()
	holds := func(key string, want error) {
		t.Helper()
		testserver.Eventually(t, testserver.Settled, "the new master answers", func() bool {
			err := client.Set(ctx, "probe", 1, 0).Err()
			return err == nil
		})
		if err := client.Get(ctx, key).Err(); !errors.Is(err, want) {
			t.Fatalf("%s: %v, want %v", key, err, want)
		}
	}
	if err := client.Set(ctx, "a", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	first := s.Master()
	second := s.HandOver()
	if first == second {
		t.Fatal("no other master")
	}
	holds("a", nil)

	replicas := s.Replicas()
	testserver.CutReplicas(second, replicas...)
	if err := client.Set(ctx, "lost", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	second.Kill()
	for _, r := range replicas {
		r.Resume()
	}
	s.AwaitFailover(second)
	holds("a", nil)
	holds("lost", redis.Nil)
}
