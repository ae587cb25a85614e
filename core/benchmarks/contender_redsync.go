package main

import (
	"context"
	"errors"
	"math"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

func redsyncPeer() contender {
	return contender{name: "redsync", kind: Peer,
		about:  "one pool, its own delays of 50 to 250 ms, tries without end; a watchdog of ours, every third of the TTL, to hold",
		direct: []string{"set"},
		open:   openRedsync}
}

type mutex redsync.Mutex

func (m *mutex) Release(ctx context.Context) error {
	ok, err := (*redsync.Mutex)(m).UnlockContext(ctx)
	if err == nil && !ok {
		return errors.New("not unlocked")
	}
	return err
}

func openRedsync(o opening) (*locks, error) {
	client := goRedis(o)
	rs := redsync.New(goredis.NewPool(client))
	l := &locks{
		try: func(ctx context.Context, key string) (lease, error) {
			m := rs.NewMutex(key, redsync.WithExpiry(ttl))
			if err := m.TryLockContext(ctx); err != nil {
				return nil, err
			}
			return (*mutex)(m), nil
		},
		acquire: func(ctx context.Context, key string) (lease, error) {
			m := rs.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt32))
			if err := m.LockContext(ctx); err != nil {
				return nil, err
			}
			return (*mutex)(m), nil
		},
		hold: func(ctx context.Context, key string) (func() bool, error) {
			m := rs.NewMutex(key, redsync.WithExpiry(ttl))
			if err := m.TryLockContext(ctx); err != nil {
				return nil, err
			}
			return watchdog(ctx, func(ctx context.Context) error {
				ok, err := m.ExtendContext(ctx)
				if err == nil && !ok {
					err = errors.New("not extended")
				}
				return err
			}), nil
		},
		close: client.Close,
	}
	return l, nil
}
