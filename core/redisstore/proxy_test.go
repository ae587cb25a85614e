package redisstore_test

import (
	"testing"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// Behind a proxy before several servers no two commands of a call may rely on one clock.
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
