// Package cache fills a cache entry once, however many processes miss it at the same
// time.
package cache

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Cache stores the values. Set gives each entry an expiry, because a value can be old
// when it is stored.
type Cache interface {
	Get(ctx context.Context, key string) (value string, ok bool)
	Set(ctx context.Context, key, value string)
}

// A caller waits for another caller's fill for at most maxWait. If the filling process
// dies, its lease expires after ttl. One of the waiting callers then fills before it
// gives up.
const (
	maxWait = 10 * time.Second
	ttl     = 5 * time.Second
)

// Get returns the cached value of key. If the cache has no value, one caller calls fill
// and stores the value, and the other callers wait. If the locks' store is unavailable,
// each caller fills without a lock, because duplicate work does no harm here.
func Get(ctx context.Context, locks *core.Locker, c Cache, key string, fill func(context.Context) (string, error)) (string, error) {
	if value, ok := c.Get(ctx, key); ok {
		return value, nil
	}
	lease, err := locks.Acquire(ctx, core.Key("fill", key), core.Name("fill"), core.Wait(maxWait), core.TTL(ttl))
	if err == nil {
		defer func() { _ = lease.Release(ctx) }()
		ctx = lease.Context()
		if value, ok := c.Get(ctx, key); ok { // filled while this caller waited
			return value, nil
		}
	} else if !errors.Is(err, core.ErrUnavailable) {
		return "", err
	}
	value, err := fill(ctx)
	if err == nil {
		c.Set(ctx, key, value)
	}
	return value, err
}
