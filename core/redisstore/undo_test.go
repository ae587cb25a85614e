package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestUndo checks the entries that an undone run leaves at the server, and the server's
// answers.
func TestUndo(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	brief := func(c store.Claim) store.Claim {
		c.TTL = time.Millisecond
		return c
	}
	t.Run("first and second run", func(t *testing.T) {
		for what, expired := range map[string]bool{"held": false, "expired": true} {
			first := begins(claimed(), "never")
			second := begins(claimOf(first.Key), "never")
			if expired {
				first, second = brief(first), brief(second)
			}
			acquire(t, r.direct, first)
			time.Sleep(5 * time.Millisecond)
			undone := undoes(first)
			undone.TTL = 0
			if err := r.direct.Release(t.Context(), undone); (err != nil) != expired {
				t.Errorf("%s: release: got %v", what, err)
			}
			if r.exists(t, first) {
				t.Errorf("%s: left are %v", what, r.fields(t, first))
			}
			c := begins(claimOf(first.Key), "begun")
			acquire(t, r.direct, c)
			release(t, r.direct, saves(c, "failed", 1, false))
			wantRecord(t, acquire(t, r.direct, second), "failed", 2, false)
			time.Sleep(5 * time.Millisecond)
			for range 2 {
				_ = r.direct.Release(t.Context(), undoes(second))
			}
			f := r.fields(t, second)
			if words := strings.Split(f["r"], " "); len(words) != 4 || words[1] != "1" || words[2] != "2" || words[3] != c.Lease || f["v"] != "failed" {
				t.Errorf("%s: the record is %q with %q", what, f["r"], f["v"])
			}
			if f["h:"+second.Lease] != "" {
				t.Errorf("%s: the hold is still there: %v", what, f)
			}
			wantRecord(t, acquire(t, r.direct, begins(claimOf(first.Key), "again")), "failed", 2, false)
		}
	})
	for what, action := range map[string]testserver.Action{
		"the request": testserver.CloseRequest, "the reply": testserver.CloseReply,
	} {
		t.Run(what+" is lost", func(t *testing.T) {
			for range trials {
				c := begins(claimed(), "begun")
				acquire(t, r.direct, c)
				release(t, r.direct, saves(c, "failed", 1, false))
				never := begins(claimOf(c.Key), "never")
				acquire(t, r.store, never)
				r.proxy.Inject(testserver.Match{Script: "release", Arg: never.Lease}, action)
				unknown(t, "release", r.store.Release(t.Context(), undoes(never)))
				_ = r.store.Release(t.Context(), undoes(never))
				wantRecord(t, acquire(t, r.direct, begins(claimOf(c.Key), "again")), "failed", 2, false)
			}
		})
	}
	t.Run("server out of memory", func(t *testing.T) { // hazard 27
		server := testserver.StartRedis(t)
		s := newStore(t, testclient.Redis(t, server.Addr))
		first, c := begins(claimed(), "never"), begins(claimed(), "begun")
		second := begins(claimOf(c.Key), "never")
		acquire(t, s, first)
		acquire(t, s, c)
		release(t, s, saves(c, "failed", 1, false))
		acquire(t, s, second)
		server.Do("CONFIG", "SET", "maxmemory", "100kb")
		release(t, s, undoes(first))
		release(t, s, undoes(second))
		everyKeyExpires(t, server)
		server.Do("CONFIG", "SET", "maxmemory", "0")
		wantRecord(t, acquire(t, s, begins(claimOf(first.Key), "begun")), "begun", 1, false)
		wantRecord(t, acquire(t, s, begins(claimOf(c.Key), "again")), "failed", 2, false)
	})
	t.Run("plain keys", func(t *testing.T) {
		s := newStore(t, testclient.Redis(t, r.server.Addr), redisstore.WithPlainKeys())
		c := claimed()
		acquire(t, s, c)
		release(t, s, undoes(c))
		acquire(t, s, claimOf(c.Key))
	})
	everyKeyExpires(t, r.server)
}
