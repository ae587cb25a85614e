package main

import (
	"context"
	"time"

	"github.com/bsm/redislock"
)

func redislockPeer() contender {
	return contender{name: "redislock", kind: Peer,
		about: "LinearBackoff(10ms) to wait; README's watchdog, every third of the TTL, to hold",
		open:  openRedislock}
}

func openRedislock(o opening) (*locks, error) {
	client := goRedis(o)
	locker := redislock.New(client)
	// The strategy has no state, so all goroutines may share it.
	waiting := &redislock.Options{RetryStrategy: redislock.LinearBackoff(10 * time.Millisecond)}
	obtain := func(opts *redislock.Options) func(context.Context, string) (lease, error) {
		return func(ctx context.Context, key string) (lease, error) {
			held, err := locker.Obtain(ctx, key, ttl, opts)
			if err != nil {
				return nil, err
			}
			return held, nil
		}
	}
	return &locks{
		try:     obtain(nil),
		acquire: obtain(waiting),
		hold: func(ctx context.Context, key string) (func() bool, error) {
			held, err := locker.Obtain(ctx, key, ttl, nil)
			if err != nil {
				return nil, err
			}
			return watchdog(ctx, func(ctx context.Context) error { return held.Refresh(ctx, ttl, nil) }), nil
		},
		close: client.Close,
	}, nil
}
