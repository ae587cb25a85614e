package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
)

// blindDelete shows a DEL that does not check whose lock it deletes.
var blindDelete = scene{
	title: "DEL of another process's lock, after one's own has expired",
	naive: side{"A's lock had expired, its DEL deleted B's, and C came in beside B", func(ctx context.Context, s *stage) {
		a, b, c := s.process("A"), s.process("B"), s.process("C")
		if must(a.SetNX(ctx, s.lock, "A", ttl).Result()) {
			s.enter(a)
			s.leave(a)
		}
		s.untilGone() // A is paused before it cleans up
		if must(b.SetNX(ctx, s.lock, "B", long).Result()) {
			s.enter(b)
		}
		must(a.Del(ctx, s.lock).Result())
		if must(c.SetNX(ctx, s.lock, "C", long).Result()) {
			s.enter(c)
		}
	}},
	kit: side{"A's release names its own hold, which is gone: B keeps the lock", func(ctx context.Context, s *stage) {
		a, b, c := s.process("A"), s.process("B"), s.process("C")
		lease := must(a.locks.TryAcquire(ctx, order, core.TTL(ttl)))
		s.enter(a)
		s.leave(a)
		a.pause()
		s.untilGone()
		if granted(b.locks.TryAcquire(ctx, order)) {
			s.enter(b)
		}
		a.resume()
		lease.Release(ctx)
		must(0, a.locks.Close(ctx)) // waits until A's clean-up has reached Redis
		if granted(c.locks.TryAcquire(ctx, order)) {
			s.enter(c)
		}
	}},
	verdict: besides("B"),
}

// compareApart shows the next attempt, with the comparison in a separate command.
var compareApart = scene{
	title: "GET to compare, then DEL: two commands",
	naive: side{"A's GET still said A, but its DEL arrived when the lock was B's", func(ctx context.Context, s *stage) {
		a, b, c := s.process("A"), s.process("B"), s.process("C")
		must(a.SetNX(ctx, s.lock, "A", ttl).Result())
		if must(get(ctx, a, s.lock)) == "A" {
			s.untilGone() // A is paused here
			if must(b.SetNX(ctx, s.lock, "B", long).Result()) {
				s.enter(b)
			}
			must(a.Del(ctx, s.lock).Result())
		}
		if must(c.SetNX(ctx, s.lock, "C", long).Result()) {
			s.enter(c)
		}
	}},
	kit: side{"Redis compares and deletes in one script, however late it arrives", func(ctx context.Context, s *stage) {
		a, b, c := s.process("A"), s.process("B"), s.process("C")
		lease := must(a.locks.TryAcquire(ctx, order, core.TTL(ttl)))
		a.pause()
		released := make(chan error, 1)
		go func() { released <- lease.Release(ctx) }()
		s.until("A's release is on its way", a.sending)
		s.untilGone()
		if granted(b.locks.TryAcquire(ctx, order)) {
			s.enter(b)
		}
		a.resume()
		<-released
		must(0, a.locks.Close(ctx)) // waits until A's clean-up has reached Redis
		if granted(c.locks.TryAcquire(ctx, order)) {
			s.enter(c)
		}
	}},
	verdict: besides("B"),
}

// get returns the value of a key, or "" if the key does not exist.
func get(ctx context.Context, p *process, key string) (string, error) {
	v, err := p.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return v, err
}

// besides returns a verdict that reports whether another process is inside the critical
// section together with holder.
func besides(holder string) func(context.Context, *stage) (failed bool, seen string) {
	return func(ctx context.Context, s *stage) (bool, string) {
		who := must(s.redis.SMembers(ctx, s.inside).Result())
		slices.Sort(who)
		need(slices.Contains(who, holder), holder+" did not come in")
		return len(who) > 1, "inside: " + strings.Join(who, " and ")
	}
}
