package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// ttl is the length of every lease.
const ttl = 30 * time.Second

// lease is held until Release.
type lease interface {
	Release(ctx context.Context) error
}

// locks is what one process has of a contender, with a client of its own. What
// a contender cannot do is nil.
type locks struct {
	try     func(ctx context.Context, key string) (lease, error) // one attempt
	acquire func(ctx context.Context, key string) (lease, error) // waits
	// pass is acquire of a yardstick that has no lock to wait for.
	pass func(ctx context.Context, key string) (lease, error)
	// hold acquires key and keeps it extended; lost tells that it is no longer
	// held, as far as the contender says.
	hold func(ctx context.Context, key string) (lost func() bool, err error)
	// once runs a call of key that answers answer, or replays what it answered.
	once  func(ctx context.Context, key string, answer []byte) error
	close func() error
}

// waits is how l waits for a key, nil if it cannot.
func (l *locks) waits() acquirer {
	if l.acquire != nil {
		return l.acquire
	}
	return l.pass
}

// Kind is what a contender is in the comparison.
type Kind string

const (
	Kit  Kind = "kit"
	Peer Kind = "peer"
	Bare Kind = "bare" // a yardstick: it promises nothing
)

// contender is one of the compared locks.
type contender struct {
	name   string
	kind   Kind
	about  string   // how it is set up
	direct []string // data commands that it sends outside scripts
	free   []string // those that it sends so only for keys that it expects to be free
	open   func(o opening) (*locks, error)
}

// opening is how a contender is to be opened.
type opening struct {
	addr  string
	conns int  // connections at most, for those that pool them
	small bool // one of a thousand, with small buffers
}

// contenders are all that are compared, in the order of the table.
func contenders() []contender {
	return []contender{kitHash(), kitPlain(), redislockPeer(), redsyncPeer(), rueidislockPeer(), bareCommands()}
}

// others are contenders of one scenario or, in tests, of none.
var others = []contender{bareMessage(), bareDetached()}

// contenderOf finds a contender by its name.
func contenderOf(name string) (contender, error) {
	all := append(contenders(), others...)
	i := slices.IndexFunc(all, func(c contender) bool { return c.name == name })
	if i < 0 {
		return contender{}, fmt.Errorf("no contender %q", name)
	}
	return all[i], nil
}

// goRedis is a client as all contenders on go-redis get it.
func goRedis(o opening) *redis.Client {
	options := &redis.Options{Addr: o.addr, PoolSize: o.conns, ContextTimeoutEnabled: true}
	if o.small {
		options.ReadBufferSize, options.WriteBufferSize = 4<<10, 4<<10
	}
	return redis.NewClient(options)
}

// watchdog calls extend every third of the TTL until it fails, as redislock's
// README advises for a lock that is held for longer than its TTL. It returns a function that
// tells that it has failed.
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
