package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
)

// process stands for a process of a scene. It has its own connections and its own
// Locker, and shares nothing with other processes.
type process struct {
	*redis.Client
	*wire
	name  string
	store *redisstore.Store
	locks *core.Locker
}

func (s *stage) process(name string) *process {
	w := newWire()
	client := redis.NewClient(&redis.Options{
		Addr: s.addr, Dialer: w.dial,
		MaxRetries: -1, DialerRetries: 1, // a dead process must not retry
	})
	store := must(redisstore.New(client, redisstore.WithPrefix(s.prefix)))
	// The scenes report losses.
	p := &process{client, w, name, store, must(core.New(store, core.WithObserver(nil)))}
	s.cast = append(s.cast, p)
	must(p.Ping(s.ctx).Result())
	return p
}

// end shuts p down, and releases the locks of p. A process that has crashed sends
// nothing.
func (p *process) end() {
	p.resume()
	if !p.crashed() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		p.locks.Close(now)
	}
	p.store.Close()
	p.Client.Close()
}
