package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
)

// noToken shows a failure that no lock can prevent alone. A holds the lock, and is
// paused before its write.
var noToken = scene{
	title: "a holder that is paused before it writes, without a fencing token",
	naive: side{"A woke up after B had written, and wrote over it", func(ctx context.Context, s *stage) {
		a, b := s.process("A"), s.process("B")
		if must(a.SetNX(ctx, s.lock, "A", ttl).Result()) {
			s.untilGone() // A is paused here
			if must(b.SetNX(ctx, s.lock, "B", long).Result()) {
				must(b.HSet(ctx, s.ledger, "by", "B").Result())
			}
			must(a.HSet(ctx, s.ledger, "by", "A").Result())
		}
	}},
	kit: side{"A's token is older than the newest seen, and the ledger refuses it", func(ctx context.Context, s *stage) {
		a, b := s.process("A"), s.process("B")
		lease := must(a.locks.TryAcquire(ctx, order, core.TTL(ttl), core.Fenced()))
		a.pause()
		s.untilGone()
		if next, err := b.locks.TryAcquire(ctx, order, core.Fenced()); granted(next, err) {
			must(write.Run(ctx, b, []string{s.ledger}, next.Token(), "B").Result())
		}
		a.resume()
		must(write.Run(ctx, a, []string{s.ledger}, lease.Token(), "A").Result())
	}},
	verdict: staleWritten,
}

// write is a resource that checks fencing tokens. It stores the newest token that it has
// seen, and refuses writes with older tokens. It returns 1 if it has written.
var write = redis.NewScript(`
	local newest = tonumber(redis.call('HGET', KEYS[1], 'token') or '0')
	if tonumber(ARGV[1]) < newest then
		return 0
	end
	redis.call('HSET', KEYS[1], 'token', ARGV[1], 'by', ARGV[2])
	return 1
`)

// staleWritten reports whether A, which lost the lock to B, wrote last.
func staleWritten(ctx context.Context, s *stage) (failed bool, seen string) {
	by, err := s.redis.HGet(ctx, s.ledger, "by").Result()
	need(!errors.Is(err, redis.Nil), "nobody has written")
	must(0, err)
	return by == "A", "ledger: last written by " + by
}
