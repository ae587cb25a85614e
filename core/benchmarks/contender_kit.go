package main

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore"
)

func kitHash() contender {
	return contender{name: "lockkit", kind: Kit,
		free:  []string{"set", "time"},
		about: "defaults: token, re-entry, watchdog, notice of loss",
		open:  func(o opening) (*locks, error) { return openKit(o) }}
}

func kitPlain() contender {
	return contender{name: "lockkit plain keys", kind: Kit,
		free:  []string{"set"},
		about: "redisstore.WithPlainKeys: watchdog, notice of loss; waiting among processes is polling",
		open:  func(o opening) (*locks, error) { return openKit(o, redisstore.WithPlainKeys()) }}
}

func openKit(o opening, opts ...redisstore.Option) (*locks, error) {
	client := goRedis(o)
	store, err := redisstore.New(client, opts...)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	locker, err := core.New(store, core.WithDefaults(core.TTL(ttl)))
	if err != nil {
		return nil, errors.Join(err, store.Close(), client.Close())
	}
	l := lockerLocks(locker, store.Close, client.Close)
	if runs, err := once.New(locker); err == nil {
		fingerprint := make([]byte, 32)
		l.once = func(ctx context.Context, key string, answer []byte) error {
			_, err := runs.Do(ctx, once.Call{Name: "bench", Scope: "tenant", Key: key, Fingerprint: fingerprint},
				func(context.Context) (once.Answer, error) { return once.Answer{Value: answer}, nil })
			return err
		}
	} else if !errors.Is(err, core.ErrUnsupported) {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// lockerLocks returns the locks of a Locker. closers are called after the Locker is
// closed, in order.
func lockerLocks(locker *core.Locker, closers ...func() error) *locks {
	take := func(acquire func(context.Context, string, ...core.AcquireOption) (*core.Lease, error)) acquirer {
		return func(ctx context.Context, key string) (lease, error) {
			held, err := acquire(ctx, key)
			if err != nil {
				return nil, err
			}
			return held, nil
		}
	}
	return &locks{
		try: take(locker.TryAcquire), acquire: take(locker.Acquire),
		hold: func(ctx context.Context, key string) (func() bool, error) {
			held, err := locker.TryAcquire(ctx, key)
			if err != nil {
				return nil, err
			}
			return func() bool { return held.Context().Err() != nil }, nil
		},
		close: func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			err := locker.Close(ctx)
			for _, end := range closers {
				err = errors.Join(err, end())
			}
			return err
		},
	}
}
