package main

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

func rueidislockPeer() contender {
	return contender{name: "rueidislock", kind: Peer,
		about: "KeyMajority 1 and NoLoopTracking, as README advises for one Redis from 7.0.5; a try may take a second instead of 20 ms",
		open:  openRueidislock}
}

// cancelable is a held lock of rueidislock.
type cancelable context.CancelFunc

func (c cancelable) Release(context.Context) error {
	c()
	return nil
}

func openRueidislock(o opening) (*locks, error) {
	client := rueidis.ClientOption{InitAddress: []string{o.addr}}
	if o.small {
		client.RingScaleEachConn, client.ReadBufferEachConn, client.WriteBufferEachConn = 6, 4<<10, 4<<10
	}
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   client,
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    ttl,
		// TryNextAfter is the time limit of one attempt. With the default of 20ms,
		// attempts fail on a busy machine. An attempt that fails on a free key then
		// waits for a notification that never arrives.
		TryNextAfter: time.Second,
	})
	if err != nil {
		return nil, err
	}
	with := func(acquire func(context.Context, string) (context.Context, context.CancelFunc, error)) func(context.Context, string) (lease, error) {
		return func(ctx context.Context, key string) (lease, error) {
			_, cancel, err := acquire(ctx, key)
			if err != nil {
				return nil, err
			}
			return cancelable(cancel), nil
		}
	}
	return &locks{
		try:     with(locker.TryWithContext),
		acquire: with(locker.WithContext),
		hold: func(ctx context.Context, key string) (func() bool, error) {
			held, _, err := locker.TryWithContext(ctx, key)
			if err != nil {
				return nil, err
			}
			return func() bool { return held.Err() != nil }, nil
		},
		close: func() error {
			locker.Close()
			return nil
		},
	}, nil
}
