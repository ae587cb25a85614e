package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// ttl is the TTL of the leases, except in the scenarios with busyTTL.
const ttl = 30 * time.Second

type lease interface {
	Release(ctx context.Context) error
}

// locks has the operations of a contender in one process, on a separate client.
// Operations that the contender does not support are nil.
type locks struct {
	try     func(ctx context.Context, key string) (lease, error) // one attempt
	acquire func(ctx context.Context, key string) (lease, error) // waits
	// pass waits for key in a yardstick. Yardsticks have no acquire.
	pass func(ctx context.Context, key string) (lease, error)
	// hold acquires key and keeps extending it. lost reports whether the contender has
	// noticed that it no longer holds key.
	hold func(ctx context.Context, key string) (lost func() bool, err error)
	// once runs a call of key that returns answer, or replays the call's earlier answer.
	once  func(ctx context.Context, key string, answer []byte) error
	close func() error
}

// waits returns the function with which l waits for a key, or nil if l cannot wait.
func (l *locks) waits() acquirer {
	if l.acquire != nil {
		return l.acquire
	}
	return l.pass
}

// Kind is the role of a contender in the comparison.
type Kind string

const (
	Kit  Kind = "kit"
	Peer Kind = "peer"
	Bare Kind = "bare" // a yardstick, without any guarantee
)

type contender struct {
	name   string
	kind   Kind
	about  string   // description of its setup
	direct []string // data commands that it sends outside of scripts
	free   []string // further such commands that it sends only for keys that it expects to be free
	open   func(o opening) (*locks, error)
}

type opening struct {
	addr  string
	conns int  // maximum number of connections, for contenders with a pool
	small bool // one of a thousand clients, with small buffers
}

// contenders returns the contenders of most scenarios on one Redis server, in the order
// of the table.
func contenders() []contender {
	return []contender{kitHash(), kitPlain(), redislockPeer(), redsyncPeer(), rueidislockPeer(), bareCommands()}
}

// others are the further contenders of some scenarios and of tests.
var others = []contender{bareMessage(), bareDetached()}

func contenderOf(name string) (contender, error) {
	all := append(contenders(), others...)
	i := slices.IndexFunc(all, func(c contender) bool { return c.name == name })
	if i < 0 {
		return contender{}, fmt.Errorf("no contender %q", name)
	}
	return all[i], nil
}

// goRedis returns a client for the contenders that use go-redis.
func goRedis(o opening) *redis.Client {
	options := &redis.Options{Addr: o.addr, PoolSize: o.conns, ContextTimeoutEnabled: true}
	if o.small {
		options.ReadBufferSize, options.WriteBufferSize = 4<<10, 4<<10
	}
	return redis.NewClient(options)
}

// watchdog calls extend after every third of the TTL until extend fails. redislock's
// README advises this for locks that are held for longer than their TTL. The returned
// function reports whether extend has failed.
func watchdog(ctx context.Context, extend func(ctx context.Context) error) (lost func() bool) {
	held, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		tick := time.NewTicker(ttl / 3)
		defer tick.Stop()
		for {
			select {
			case <-held.Done():
				return
			case <-tick.C:
				if extend(held) != nil {
					return
				}
			}
		}
	}()
	return func() bool { return held.Err() != nil }
}
