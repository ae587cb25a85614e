package main

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// stage has the keys of one side of a scene, and the processes that use them.
type stage struct {
	ctx    context.Context
	redis  *redis.Client // the spectator's client
	addr   string
	prefix string
	lock   string // the lock's key, the same for the naive side and for the kit
	inside string // a set of the processes inside the critical section
	ledger string // the data that the lock protects
	cast   []*process

	mu    sync.Mutex
	last  time.Time     // the last call of beat
	stood time.Duration // the longest time between two calls of beat
}

func newStage(spectator *redis.Client, addr string) *stage {
	prefix := "pitfalls:" + rand.Text() + ":"
	return &stage{
		redis: spectator, addr: addr, prefix: prefix,
		lock:   prefix + "lk2:{" + order + "}", // the key's name in core/redisstore
		inside: prefix + "inside",
		ledger: prefix + "ledger",
	}
}

// enter records in Redis that p is inside the critical section.
func (s *stage) enter(p *process) { s.note(p.name) }

func (s *stage) note(who string) { must(s.redis.SAdd(s.ctx, s.inside, who).Result()) }

func (s *stage) leave(p *process) { must(s.redis.SRem(s.ctx, s.inside, p.name).Result()) }

// untilGone stands for the pause of a process. It waits until the lock has expired in
// Redis.
func (s *stage) untilGone() {
	s.until("the lock expires", func() bool { return must(s.redis.Exists(s.ctx, s.lock).Result()) == 0 })
}

func (s *stage) until(what string, ok func() bool) {
	ctx, cancel := context.WithTimeoutCause(s.ctx, 20*time.Second, errors.New("waited in vain until "+what))
	defer cancel()
	for !ok() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			must(0, context.Cause(ctx))
		}
	}
}

// errStoodStill reports that a scene shows nothing, because its processes were late.
var errStoodStill = errors.New("the machine stood still")

// stoodStill reports whether the machine has stood still for half a TTL. Then a lease may
// not have been extended, and a call may have had no answer.
func (s *stage) stoodStill() bool { return s.beat() >= ttl/2 }

// watchMachine measures how long the machine stands still, until stop is called.
func (s *stage) watchMachine() (stop func()) {
	s.last = time.Now()
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-time.After(20 * time.Millisecond):
				s.beat()
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}

func (s *stage) beat() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.stood, s.last = max(s.stood, now.Sub(s.last)), now
	return s.stood
}

// clear ends the processes and deletes the keys, even after an interrupt.
func (s *stage) clear() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 5*time.Second)
	defer cancel()
	for _, p := range s.cast {
		p.end()
	}
	return s.redis.Del(ctx, s.lock, s.inside, s.ledger).Err()
}
