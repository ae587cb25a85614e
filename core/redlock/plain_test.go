package redlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// onPlainKeys runs the suite on three nodes with plain keys, which other
// implementations of Redlock use.
func onPlainKeys(t *testing.T) {
	servers, _ := servers(t, 3)
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB) func() store.Store {
			return func() store.Store { return byLease{plainly(t, servers)} }
		},
		Unit: time.Second,
		Without: append(without[:len(without):len(without)], storetest.Shared, storetest.Reentry, storetest.Joining,
			storetest.Fencing, storetest.Tombstones, storetest.Watching, storetest.Naming),
	})
}

// TestPlainKeys_OnServers makes some calls on three nodes with plain keys.
// TestStoreOnServers runs the suite on them.
func TestPlainKeys_OnServers(t *testing.T) {
	t.Parallel()
	servers, _ := servers(t, 3)
	s, rival := plainly(t, servers), plainly(t, servers)
	holder, next := claim("holder"), claim("next")
	holder.TTL = time.Minute
	acquireSoon(t, s, holder)
	if _, err := rival.Acquire(t.Context(), next); !errors.Is(err, store.ErrBusy) {
		t.Errorf("acquire of a held key: got %v, want %v", err, store.ErrBusy)
	}
	if err := rival.Release(t.Context(), next); !errors.Is(err, store.ErrLost) {
		t.Errorf("release by another: got %v, want %v", err, store.ErrLost)
	}
	if x := s.Extend(t.Context(), []store.Claim{holder}); x[0].Err != nil {
		t.Error(x[0].Err)
	}
	if err := s.Release(t.Context(), holder); err != nil {
		t.Error(err)
	}
	acquireSoon(t, rival, next)
}

// plainly creates a Store on servers with plain keys.
func plainly(t testing.TB, servers []*testserver.Redis) unhurried {
	t.Helper()
	var nodes []store.Store
	for _, s := range servers {
		node, err := redisstore.New(testclient.Redis(t, s.Addr), redisstore.WithPlainKeys())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = node.Close() })
		nodes = append(nodes, node)
	}
	return unhurriedly(fit(t, newStore(t, nodes, redlock.WithNodeTimeout(slow))))
}

// byLease gives every lease its own owner. A plain key distinguishes owners only, while
// the suite uses several leases of one owner.
type byLease struct{ unhurried }

func (s byLease) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	owner := c.Owner
	c.Owner = c.Lease
	g, err := s.unhurried.Acquire(ctx, c)
	if err == nil {
		g.Owner = owner
	}
	return g, err
}

func (s byLease) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	own := make([]store.Claim, len(claims))
	for i, c := range claims {
		own[i] = c
		own[i].Owner = c.Lease
	}
	return s.unhurried.Extend(ctx, own)
}

func (s byLease) Release(ctx context.Context, c store.Claim) error {
	c.Owner = c.Lease
	return s.unhurried.Release(ctx, c)
}
