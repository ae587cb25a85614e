package main

import (
	"context"
	"fmt"

	"github.com/lockkit/lockkit/core"
)

// noExpiry shows the first lock that people write.
var noExpiry = scene{
	title: "SETNX without an expiry, then a crash",
	naive: side{"A died before its DEL, and nothing else will ever free the key", func(ctx context.Context, s *stage) {
		a := s.process("A")
		if must(a.SetNX(ctx, s.lock, "A", 0).Result()) {
			s.enter(a)
			a.crash()
			a.Del(ctx, s.lock) // never sent
		}
	}},
	kit: side{"A's lease was extended while A lived, and ran out after it died", func(ctx context.Context, s *stage) {
		a := s.process("A")
		lease := must(a.locks.TryAcquire(ctx, order, core.TTL(ttl)))
		s.enter(a)
		a.crash()
		lease.Release(ctx) // never sent
	}},
	verdict: staysForEver,
}

// expiryApart shows the next attempt, with the expiry in a separate command.
var expiryApart = scene{
	title: "SETNX, then EXPIRE, and a crash between the two",
	naive: side{"A died when its SETNX had arrived and its EXPIRE had not been sent", func(ctx context.Context, s *stage) {
		a := s.process("A")
		a.crashAfter(1)
		if must(a.SetNX(ctx, s.lock, "A", 0).Result()) {
			a.Expire(ctx, s.lock, ttl) // never sent
		}
	}},
	kit: side{"one SET has holder and expiry: there is no between to die in", func(ctx context.Context, s *stage) {
		a := s.process("A")
		must(a.locks.TryAcquire(ctx, "connects")).Release(ctx)
		a.crashAfter(1)
		a.locks.TryAcquire(ctx, order, core.TTL(ttl))
	}},
	verdict: staysForEver,
}

// staysForEver reports whether the lock of a dead process never expires.
func staysForEver(ctx context.Context, s *stage) (failed bool, seen string) {
	left := must(s.redis.PTTL(ctx, s.lock).Result())
	switch left {
	case -2:
		need(false, "the lock was not there when its holder died")
	case -1:
		return true, "PTTL -1: no expiry"
	}
	s.untilGone()
	return false, fmt.Sprintf("PTTL %d, then EXISTS 0", left.Milliseconds())
}
