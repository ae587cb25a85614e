package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
)

// shortLease shows a TTL that is too short for the work.
var shortLease = scene{
	title: "a lease that is shorter than the work, and not extended",
	naive: side{"the lease ended before A's work did, and B came in beside A", func(ctx context.Context, s *stage) {
		a, b := s.process("A"), s.process("B")
		if must(a.SetNX(ctx, s.lock, "A", ttl).Result()) {
			s.enter(a)
		}
		atWork(ctx, func() (done bool) {
			if must(b.SetNX(ctx, s.lock, "B", long).Result()) {
				s.enter(b)
				return true
			}
			return false
		})
	}},
	kit: side{"the lease was extended for as long as A worked, and B was kept out", func(ctx context.Context, s *stage) {
		a, b := s.process("A"), s.process("B")
		lease := must(a.locks.TryAcquire(ctx, order, core.TTL(ttl)))
		s.enter(a)
		came := false
		atWork(ctx, func() (done bool) {
			if came = granted(b.locks.TryAcquire(ctx, order)); came {
				s.enter(b)
			}
			return came
		})
		// On a machine that stands still, the lease is not extended, and the scene
		// shows nothing.
		if came && s.stoodStill() {
			select {
			case <-lease.Context().Done():
				must(0, errStoodStill)
			case <-time.After(ttl):
			}
		}
	}},
	verdict: besides("A"),
}

// atWork calls try repeatedly while A works, until try returns true or more than two
// TTLs have passed.
func atWork(ctx context.Context, try func() (done bool)) {
	for end := time.Now().Add(ttl*2 + ttl/4); !try() && time.Now().Before(end); {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			must(0, ctx.Err())
		}
	}
}

// nestedCall shows a function with a lock that calls another function with the same
// lock.
var nestedCall = scene{
	title: "a nested call that takes the same lock again",
	naive: side{"the nested call waits for a lock that its own caller holds", func(ctx context.Context, s *stage) {
		a := s.process("A")
		lock := func(patience time.Duration) bool {
			for end := time.Now().Add(patience); time.Now().Before(end); {
				if must(a.SetNX(ctx, s.lock, "A", long).Result()) {
					return true
				}
				time.Sleep(10 * time.Millisecond)
			}
			return false
		}
		if lock(ttl) {
			s.note("outer")
			if !lock(ttl) { // it would wait until its caller's lock expires
				return
			}
			s.note("nested")
			must(a.Del(ctx, s.lock).Result())
		}
	}},
	kit: side{"the nested call joins the hold that its context carries", func(ctx context.Context, s *stage) {
		a := s.process("A")
		err := a.locks.Do(ctx, order, func(ctx context.Context) error {
			s.note("outer")
			return a.locks.Do(ctx, order, func(context.Context) error {
				s.note("nested")
				return nil
			}, core.Wait(ttl))
		}, core.Wait(ttl))
		if !errors.Is(err, core.ErrBusy) {
			must(0, err)
		}
	}},
	verdict: nestedStuck,
}

// nestedStuck reports whether the nested call was not granted the lock, or the two calls
// left the lock behind.
func nestedStuck(ctx context.Context, s *stage) (failed bool, seen string) {
	who := must(s.redis.SMembers(ctx, s.inside).Result())
	slices.Sort(who)
	slices.Reverse(who)
	need(slices.Contains(who, "outer"), "the outer call did not get in")
	if slices.Contains(who, "nested") {
		// A release that was not answered is repeated in the background.
		s.untilGone()
	}
	left := must(s.redis.Exists(ctx, s.lock).Result())
	return !slices.Contains(who, "nested") || left > 0,
		fmt.Sprintf("inside: %s; EXISTS %d", strings.Join(who, " and "), left)
}
