package zkstore_test

import (
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestRevoke_ExtendedMeanwhile extends a hold between the operator's read and the
// revoke. The key stays taken for the time that the holder trusts after the extension,
// not for the time that the operator read. hazard 66
func TestRevoke_ExtendedMeanwhile(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	proxy := testserver.NewZooKeeperProxy(t, server)
	holder, _ := storeOn(t, session, []string{server})
	operator, _ := storeOn(t, session, []string{proxy.Addr})
	c := exclusive("extended meanwhile")
	c.TTL = 10 * time.Second
	grant(t, holder, c)

	// The first multi request reads the servers' time, and the second revokes.
	f := proxy.Inject(testserver.Match{Command: "multi", Skip: 1}, testserver.HoldRequest)
	revoked := make(chan error, 1)
	go func() { revoked <- operator.Revoke(t.Context(), c.Key, store.HoldID(c.Lease), time.Millisecond) }()
	f.Await(t)
	c.TTL = time.Minute
	if x := holder.Extend(t.Context(), []store.Claim{c}); x[0].Err != nil {
		t.Fatal(x[0].Err)
	}
	f.Deliver()
	if err := <-revoked; err != nil {
		t.Fatal(err)
	}
	state, err := operator.Look(t.Context(), c.Key)
	if err != nil || len(state.Holds) != 1 || state.Holds[0].ID != "" || state.Holds[0].Left < 30*time.Second {
		t.Errorf("got %+v and %v, want a key that stays taken for about a minute", state, err)
	}
}

// TestGrant_CountsFromLastWrite grants the key to a waiter by a read of its queue. The
// server that was read may be behind the leader and not know of a revoke yet. So the
// grant counts from the last write that was confirmed to the waiter, because the
// waiter's server knows of every revoke before that write. hazard 66
func TestGrant_CountsFromLastWrite(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	holder, _ := storeOn(t, session, []string{server})
	for range 20 {
		proxy := testserver.NewZooKeeperProxy(t, server)
		waiter, _ := storeOn(t, session, []string{proxy.Addr})
		first := exclusive("looked at")
		grant(t, holder, first)
		c := waiting(first.Key)
		c.TTL = 10 * time.Second
		if _, err := waiter.Acquire(t.Context(), c); err == nil {
			t.Fatal("a key that is held was granted")
		}
		written := time.Now()
		if err := holder.Release(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		writes := func() int {
			return proxy.Count(testserver.Match{Command: "multi"}) + proxy.Count(testserver.Match{Command: "setData"})
		}
		before, sent := writes(), time.Now()
		g, err := waiter.Acquire(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		looked := writes() == before
		if err := waiter.Release(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if !looked {
			continue // the machine was so slow that a write was needed
		}
		if late := sent.Add(g.Valid).Sub(written.Add(c.TTL)); late > 0 {
			t.Errorf("the grant lasts for %v too long", late)
		}
		return
	}
	t.Error("test setup: got no grant by a read alone")
}
