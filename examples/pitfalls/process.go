package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
)

// process is a process of a scene, but for running in this one: it has
// connections and a Locker of its own, and shares nothing with the others.
type process struct {
	*redis.Client
	*wire
	name  string
	store *redisstore.Store
	locks *core.Locker
}

// process starts one, connected.
func (s *stage) process(name string) *process {
	w := newWire()
	client := redis.NewClient(&redis.Options{
		Addr: s.addr, Dialer: w.dial,
		MaxRetries: -1, DialerRetries: 1, // the dead need not try again
	})
	store := must(redisstore.New(client, redisstore.WithPrefix(s.prefix)))
	p := &process{client, w, name, store, must(core.New(store, core.WithObserver(nil)))} // the scenes tell of losses themselves
	s.cast = append(s.cast, p)
	must(p.Ping(s.ctx).Result())
	return p
}

// end shuts p down, giving back what it holds. One that crashed has nothing to
// say any more.
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
