package redisstore_test

import (
	"context"
	"slices"
	"testing"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// notRedisson is what the locks of Redisson cannot carry.
var notRedisson = []storetest.Feature{
	storetest.Shared, storetest.Permits, storetest.Fair, storetest.Tombstones, storetest.Records, storetest.Carding, storetest.Places,
}

func TestStoreWithRedisson(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	conformance(t, server, func(t testing.TB) store.Store {
		return unfenced{newStore(t, testclient.Redis(t, server.Addr), redisstore.WithRedisson())}
	}, append(slices.Clone(notRedisson), storetest.Fencing)...)
}

// unfenced is without tokens, as most claims are: no counter is made for them.
type unfenced struct{ *redisstore.Store }

func (u unfenced) CheckClaim(c store.Claim) error {
	if c.MinToken > 0 {
		return store.ErrUnsupported
	}
	return u.Store.CheckClaim(c)
}

func (u unfenced) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if c.MinToken > 0 {
		return store.Grant{}, store.ErrUnsupported
	}
	return u.Store.Acquire(ctx, c)
}

// fenced asks for a token with each claim, as core.Fenced does.
type fenced struct{ *redisstore.Store }

func (f fenced) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if c.Weight == store.All && c.Limit == store.All {
		c.MinToken = max(c.MinToken, 1)
	}
	return f.Store.Acquire(ctx, c)
}

func TestStoreWithRedissonFenced(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	conformanceOf(t, func(t testing.TB) store.Store {
		return fenced{newStore(t, testclient.Redis(t, server.Addr), redisstore.WithRedisson())}
	}, notRedisson...)
}
