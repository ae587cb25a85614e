package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// bareMessage is the simplest lock that a release can pass on by message. A script
// checks that the caller has the lock, makes the waiter the owner of the lock, and
// notifies the waiter. The lock has no token and no order, and no expiry except the
// expiry of the key. It does not check whether the waiter still listens, and only one
// process can wait.
func bareMessage() contender {
	return contender{name: "bare message", kind: Bare, direct: []string{"subscribe"}, open: openMessage}
}

var (
	messageAcquire = redis.NewScript(`
local held = redis.call('get', KEYS[1])
redis.call('set', KEYS[1], held and held .. ' ' .. ARGV[1] or ARGV[1], 'px', ARGV[2])
return held and 0 or 1`)
	messageRelease = redis.NewScript(`
local owner, other = string.match(redis.call('get', KEYS[1]) or '', '^(%S+) ?(%S*)$')
if owner ~= ARGV[1] then return 0 end
if other == '' then return redis.call('del', KEYS[1]) end
redis.call('set', KEYS[1], other, 'px', ARGV[2])
return redis.call('publish', other, '')`)
)

// listener is a process to which locks are passed, one at a time.
type listener struct {
	client *redis.Client
	sub    *redis.PubSub
	name   string // its channel, and its name as an owner
}

func openMessage(o opening) (*locks, error) {
	client := goRedis(o)
	ctx := context.Background()
	id, err := client.Incr(ctx, "listeners").Result()
	if err != nil {
		return nil, err
	}
	l := &listener{client: client, name: fmt.Sprintf("listener:%d", id)}
	l.sub = client.Subscribe(ctx, l.name)
	if _, err := l.sub.Receive(ctx); err != nil { // the confirmation
		return nil, err
	}
	return &locks{pass: l.acquire, close: client.Close}, nil
}

func (l *listener) acquire(ctx context.Context, key string) (lease, error) {
	got, err := messageAcquire.Run(ctx, l.client, []string{key}, l.name, ttl.Milliseconds()).Int()
	if err == nil && got == 0 {
		_, err = l.sub.ReceiveMessage(ctx)
	}
	return &passed{l, key}, err
}

type passed struct {
	*listener
	key string
}

func (p *passed) Release(ctx context.Context) error {
	n, err := messageRelease.Run(ctx, p.client, []string{p.key}, p.name, ttl.Milliseconds()).Int()
	if err == nil && n != 1 {
		err = fmt.Errorf("%s was not passed on", p.key)
	}
	return err
}
