// Package cache fills an entry of a cache once, however many processes miss it at a time.
package cache

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Cache is where the values are.
type Cache interface {
	Get(ctx context.Context, key string) (value string, ok bool)
	Set(ctx context.Context, key, value string)
}

// A caller waits for another one's fill for up to maxWait. The lease of a process that died
// expires before that, after ttl, so that one of those that wait fills.
const (
	maxWait = 10 * time.Second
	ttl     = 5 * time.Second
)

// Get returns the value of key, and has fill make it if there is none. One caller fills, and
// the others wait for it. If the store of the locks is down, each fills for itself: twice
// the work does no harm here.
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
