package redlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// onPlainKeys runs the suite on three nodes with plain keys, which other
// implementations of Redlock use.
func onPlainKeys(t *testing.T) {
	servers, _ := servers(t, 3)
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB) func() store.Store {
			return func() store.Store {
				var nodes []store.Store
				for _, s := range servers {
					node, err := redisstore.New(testclient.Redis(t, s.Addr), redisstore.WithPlainKeys())
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = node.Close() })
					nodes = append(nodes, node)
				}
				return byLease{unhurriedly(fit(t, newStore(t, nodes, redlock.WithNodeTimeout(slow))))}
			}
		},
		Unit: time.Second,
		Without: append(without[:len(without):len(without)], storetest.Shared, storetest.Reentry, storetest.Joining,
			storetest.Fencing, storetest.Tombstones, storetest.Watching, storetest.Naming),
	})
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
