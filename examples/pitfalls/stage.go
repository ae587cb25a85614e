package main

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// stage is where one side of a scene is played: keys of its own, and the
// processes that use them.
type stage struct {
	ctx    context.Context
	redis  *redis.Client // the spectator's
	addr   string
	prefix string
	lock   string // the lock's key, the same for the naive way and for the kit
	inside string // a set: the processes that have entered what the lock protects
	ledger string // what the lock protects
	cast   []*process
}

func newStage(spectator *redis.Client, addr string) *stage {
	prefix := "pitfalls:" + rand.Text() + ":"
	return &stage{
		redis: spectator, addr: addr, prefix: prefix,
		lock:   prefix + "lk2:{" + order + "}", // as core/redisstore names it
		inside: prefix + "inside",
		ledger: prefix + "ledger",
	}
}

// enter notes in Redis that p is inside what the lock protects.
func (s *stage) enter(p *process) { s.note(p.name) }

func (s *stage) note(who string) { must(s.redis.SAdd(s.ctx, s.inside, who).Result()) }

// leave notes that p is not inside any more.
func (s *stage) leave(p *process) { must(s.redis.SRem(s.ctx, s.inside, p.name).Result()) }

// untilGone is how a process is paused here: it goes on when Redis has let the
// lock expire.
func (s *stage) untilGone() {
	s.until("the lock expires", func() bool { return must(s.redis.Exists(s.ctx, s.lock).Result()) == 0 })
}

// until waits for something to come true.
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

// clear ends the processes and deletes the keys, also when the program is being
// interrupted.
func (s *stage) clear() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 5*time.Second)
	defer cancel()
	for _, p := range s.cast {
		p.end()
	}
	return s.redis.Del(ctx, s.lock, s.inside, s.ledger).Err()
}
