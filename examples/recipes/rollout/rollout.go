// Package rollout moves a service from a lock of its own to the kit, one release after the
// other. Replicas of two releases in a row exclude each other, so each release can be rolled
// out replica by replica, and taken back.
package rollout

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
)

// Lock runs work while it holds the lock of a name. Its error is that of work, or says why
// work did not run.
type Lock func(ctx context.Context, name string, work func(ctx context.Context) error) error

// ErrTaken is returned by Old if another one holds the lock.
var ErrTaken = errors.New("rollout: the lock is taken")

// The lock of Old: a key with this prefix, which lasts so long.
const (
	prefix = "lock:"
	ttl    = 30 * time.Second
)

// unlock deletes the key if it has the value of its holder.
var unlock = redis.NewScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)

// Old is what many services have: SET NX PX, a script, and nobody who extends the lock.
func Old(client redis.UniversalClient) Lock {
	return func(ctx context.Context, name string, work func(context.Context) error) error {
		value := rand.Text()
		ok, err := client.SetNX(ctx, prefix+name, value, ttl).Result()
		if err != nil {
			return err
		}
		if !ok {
			return ErrTaken
		}
		defer unlock.Run(context.WithoutCancel(ctx), client, []string{prefix + name}, value)
		return work(ctx)
	}
}

// OldKeys returns a store with the keys of Old, for release 1: New(locks) on it.
func OldKeys(client redis.UniversalClient) (*redisstore.Store, error) {
	return redisstore.New(client, redisstore.WithPlainKeys(), redisstore.WithPrefix(prefix))
}

// Both is release 2: it holds the lock by the old keys, and in it the one by the usual keys.
func Both(old, usual *core.Locker) Lock {
	return func(ctx context.Context, name string, work func(context.Context) error) error {
		return old.Do(ctx, name, func(ctx context.Context) error {
			return usual.Do(ctx, name, work)
		})
	}
}

// New is release 3 on a store with usual keys, and release 1 on one with the old ones.
func New(locks *core.Locker) Lock {
	return func(ctx context.Context, name string, work func(context.Context) error) error {
		return locks.Do(ctx, name, work)
	}
}
