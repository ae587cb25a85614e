// Package rollout moves a service from its own lock to the kit, one release after the
// other. Replicas of two consecutive releases exclude each other, so each release can
// be rolled out replica by replica, and rolled back.
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

// Lock runs work while it holds the lock of a name. It returns the error of work, or
// the reason why work did not run.
type Lock func(ctx context.Context, name string, work func(ctx context.Context) error) error

// ErrTaken is returned by a lock of Old if another process holds the lock.
var ErrTaken = errors.New("rollout: the lock is taken")

// Old locks with a key that has this prefix and expires after ttl.
const (
	prefix = "lock:"
	ttl    = 30 * time.Second
)

// unlock deletes the key if it has the value of its holder.
var unlock = redis.NewScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)

// Old returns a lock as many services have it: SET NX PX and a script. Nothing extends
// the lock.
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

// OldKeys returns a store with the keys of Old. Release 1 is New with a Locker on this
// store.
func OldKeys(client redis.UniversalClient) (*redisstore.Store, error) {
	return redisstore.New(client, redisstore.WithPlainKeys(), redisstore.WithPrefix(prefix))
}

// Both returns the lock of release 2. It holds the lock with the old key, and under it
// the lock with the usual key.
func Both(old, usual *core.Locker) Lock {
	return func(ctx context.Context, name string, work func(context.Context) error) error {
		return old.Do(ctx, name, func(ctx context.Context) error {
			return usual.Do(ctx, name, work)
		})
	}
}

// New returns the lock of release 3 if the store of locks has usual keys, and the lock of
// release 1 if the store has the old keys.
func New(locks *core.Locker) Lock {
	return func(ctx context.Context, name string, work func(context.Context) error) error {
		return locks.Do(ctx, name, work)
	}
}
