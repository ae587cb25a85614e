package redisstore_test

import (
	"testing"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestWithProxy checks that no SET and no TIME is sent. A proxy can send the two to
// different servers, whose clocks differ.
func TestWithProxy(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil, redisstore.WithProxy())
	plays(t, newStore(t, testclient.Redis(t, r.server.Addr), redisstore.WithProxy()), "a proxy")
	r.proxy.Forget()
	c := claimed()
	last := acquire(t, r.store, c).Token
	release(t, r.store, c)
	if next := acquire(t, r.store, claimOf(c.Key)); next.Token <= last {
		t.Errorf("got token %d after %d", next.Token, last)
	}
	for _, q := range r.proxy.Requests() {
		if q.Name == "set" || q.Name == "time" {
			t.Errorf("%s was sent, want scripts alone", q.Name)
		}
	}
}

// TestWithoutScriptedWakeUps wakes waiters by a message that the releasing process
// sends after its script.
func TestWithoutScriptedWakeUps(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil, redisstore.WithoutScriptedWakeUps())
	plays(t, r.direct, "silent")
	published := func() (n int) {
		for _, q := range r.proxy.Requests() {
			if q.Name == "publish" {
				n++
			}
		}
		return n
	}
	c, w := claimed(), store.Claim{}
	acquire(t, r.store, c)
	w = claimOf(c.Key)
	w.Wait, w.Fair, w.Push = true, true, true
	woken := watch(t, r.direct, w)
	busyWith(t, r.direct, w)
	r.proxy.Forget()
	release(t, r.store, c)
	wakes(t, woken)
	if n := published(); n != 1 {
		t.Errorf("got %d messages, want 1", n)
	}
	acquire(t, r.store, w)
	r.proxy.Forget()
	release(t, r.store, w)
	if n := published(); n != 0 {
		t.Errorf("without waiters: got %d messages, want none", n)
	}
}
