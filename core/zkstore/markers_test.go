package zkstore_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestMarkers checks that as few nodes as possible outlive their session, because
// ZooKeeper does not expire them.
func TestMarkers(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	admin := testclient.ZooKeeper(t, session, server)
	s, _ := storeOn(t, session, []string{server})
	other, _ := storeOn(t, session, []string{server})
	markers := func(t *testing.T, key string) []string {
		t.Helper()
		return slices.DeleteFunc(children(t, admin, key), func(name string) bool { return !strings.HasPrefix(name, "m.") })
	}
	giveBack := func(t *testing.T, s store.Store, c store.Claim) {
		t.Helper()
		if err := s.Release(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}

	// However often claims require a higher token, a key has one node for this. Its
	// tokens do not fall below the required tokens.
	t.Run("one node for higher tokens", func(t *testing.T) {
		t.Parallel()
		const key, step = "raised", 1 << 40
		var last uint64
		for i := range 6 {
			store := []store.Store{s, other}[i%2]
			c := exclusive(key)
			c.MinToken = last + step
			g := grant(t, store, c)
			if g.Token < c.MinToken {
				t.Errorf("got token %d, want at least %d", g.Token, c.MinToken)
			}
			c.MinToken += step // the holder also requires a higher token
			last = grant(t, store, c).Token
			if last < c.MinToken {
				t.Errorf("got token %d, want at least %d", last, c.MinToken)
			}
			giveBack(t, store, c)
		}
		eventually(t, "there is one marker", func() bool { return len(markers(t, key)) == 1 })
		for _, store := range []store.Store{s, other} {
			c := exclusive(key)
			g := grant(t, store, c)
			if g.Token <= last {
				t.Errorf("got token %d after %d", g.Token, last)
			}
			last = g.Token
			giveBack(t, store, c)
		}
		if names := children(t, admin, key); len(names) != 1 {
			t.Errorf("%v are left, want the marker alone", names)
		}
	})
	// A claim for a token leaves no node, and the key's node is removed.
	t.Run("claim for a token", func(t *testing.T) {
		t.Parallel()
		l := lockerOn(t, s)
		lease := acquire(t, l, "fenced", core.Fenced())
		if m := markers(t, "fenced"); lease.Token() == 0 || len(m) != 0 {
			t.Errorf("got token %d and markers %v", lease.Token(), m)
		}
		release(t, lease)
		eventually(t, "the key's node is gone", func() bool {
			there, _, err := admin.Exists("/lk1/fenced")
			return err == nil && !there
		})
	})
	// The next claim of the key deletes the node that KeepFor has left.
	t.Run("KeepFor of a dead process", func(t *testing.T) {
		t.Parallel()
		conn := testclient.ZooKeeper(t, session, server)
		gone := newStoreOn(t, conn)
		c := exclusive("leftover")
		grant(t, gone, c)
		c.Keep = time.Second
		giveBack(t, gone, c)
		if err := gone.Close(); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if names := children(t, admin, "leftover"); len(names) != 1 || !strings.HasPrefix(names[0], "k.") {
			t.Errorf("%v are there, want what was left", names)
		}
		next := exclusive("leftover")
		eventually(t, "the next one has the key", func() bool {
			_, err := s.Acquire(t.Context(), next)
			return err == nil
		})
		if names := children(t, admin, "leftover"); len(names) != 1 || !strings.HasPrefix(names[0], "h.") {
			t.Errorf("%v are there, want the hold alone", names)
		}
		giveBack(t, s, next)
	})
}
