package testserver_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestEnsemble(t *testing.T) {
	t.Parallel()
	e := testserver.StartEnsemble(t, 0)
	leader := e.Leader()
	var followers []*testserver.ZooKeeper
	for _, s := range e.Servers {
		if s != leader {
			followers = append(followers, s)
		}
	}
	for _, s := range followers {
		eventually(t, "the others follow the leader", func() bool { return s.Mode() == "follower" })
	}
	if len(e.Addrs()) != 3 || len(followers) != 2 {
		t.Fatalf("%d addresses, %d followers", len(e.Addrs()), len(followers))
	}
	first, last := testclient.ZooKeeper(t, session, leader.Addr), testclient.ZooKeeper(t, session, followers[1].Addr)

	// A write that the leader confirms reaches a follower.
	t.Run("confirmed write", func(t *testing.T) {
		create(t, first, "/all")
		if _, err := last.Sync("/all"); err != nil {
			t.Fatal(err)
		}
		if !exists(t, last, "/all") {
			t.Error("got no node at a follower")
		}
	})
	// A follower that is cut off shows no new write. After Heal it receives the new
	// writes.
	t.Run("cut off follower", func(t *testing.T) {
		link := e.Link(followers[1], leader)
		link.Partition()
		link.Partition()          // changes nothing
		create(t, first, "/news") // the other two servers are a majority
		if there, _, err := last.Exists("/news"); err == nil && there {
			t.Error("it passed")
		}
		link.Heal()
		link.Heal()
		eventually(t, "the follower has it", func() bool {
			there, _, err := last.Exists("/news")
			return err == nil && there
		})
	})
	// After the leader's death another server leads, and has all confirmed writes.
	t.Run("killed leader", func(t *testing.T) {
		leader.Kill()
		if next := e.Leader(); next == leader {
			t.Error("the dead one leads")
		}
		eventually(t, "a client of the others is served", func() bool {
			there, _, err := last.Exists("/news")
			return err == nil && there
		})
		eventually(t, "it can write", func() bool {
			_, err := last.Create("/more", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
			return err == nil || errors.Is(err, zk.ErrNodeExists)
		})
		leader.Restart()
		eventually(t, "it is back, as a follower", func() bool { return leader.Mode() == "follower" })
	})
}

// TestStartTicking requests a session of one long tick. Servers grant at least two
// ticks, so the session must not expire before that.
func TestStartTicking(t *testing.T) {
	t.Parallel()
	const tick = time.Second
	e := testserver.StartEnsemble(t, tick)
	// Both clients use the same server, because another server may not have the node yet.
	watcher := testclient.ZooKeeper(t, session, e.Servers[0].Addr)
	proxy := testserver.NewZooKeeperProxy(t, e.Servers[0].Addr)
	conn := testclient.ZooKeeper(t, tick, proxy.Addr)
	var start time.Time
	eventually(t, "there is a node of a session that lives", func() bool {
		start = time.Now()
		_, err := conn.Create("/short", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		return err == nil
	})
	proxy.Down()
	eventually(t, "the session has expired", func() bool {
		there, _, err := watcher.Exists("/short")
		return err == nil && !there
	})
	if took := time.Since(start); took < 2*tick {
		t.Errorf("got its end after %v, before two ticks had passed", took)
	}
}
