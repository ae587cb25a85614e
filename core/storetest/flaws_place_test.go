package storetest_test

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// placeFlaws lists flaws in the places of waiters.
var placeFlaws = []flaw{
	{"gives a place to a claim that does not wait", []string{
		"fair/a fair claim that does not wait has no place",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			c.Wait = true
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"keeps the place of an admitted claim", []string{
		"fair/waiters are admitted in the order in which they came",
		"fair/a fair claim of a free key is granted, and holds up no other afterwards",
		"waiters/a waiter that leaves changes nothing for those before it",
		"concurrency/goroutines that count under a fair mutex lose no count",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if line := s.queued(); c.Fair && len(line) > 0 && line[0].Lease != c.Lease {
				return store.Grant{}, &store.BusyError{RetryAfter: time.Second}
			}
			g, err := s.Store.Acquire(ctx, c)
			if err == nil && c.Fair {
				s.queue(c)
			}
			return g, err
		}
	}},
	{"keeps the place of a waiter that leaves", []string{
		"waiters/a waiter that leaves frees its place",
		"waiters/a waiter that leaves changes nothing for those before it",
		"wake-ups/a fair waiter that leaves when it is woken passes that on",
	}, func(s *tampered) {
		s.acquire = s.acquireWaiting
		s.release = func(ctx context.Context, c store.Claim) error {
			if _, waits := s.noted(c.Lease); waits {
				s.forget(c.Lease)
				return nil
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"never forgets a waiter", []string{
		"waiters/a dead waiter is forgotten after its TTL",
		"waiters/a dead waiter with a long TTL is forgotten after WaiterLife",
		"waiters/a waiter that was forgotten comes last",
		"wake-ups/fair writers in line all get in by their wake-ups",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if line := s.queued(); c.Fair && len(line) > 0 && line[0].Lease != c.Lease {
				s.queue(c)
				return store.Grant{}, &store.BusyError{RetryAfter: time.Second}
			}
			g, err := s.Store.Acquire(ctx, c)
			switch {
			case err == nil:
				s.unqueue(c.Lease)
			case errors.Is(err, store.ErrBusy) && c.Fair && c.Wait:
				s.queue(c)
			}
			return g, err
		}
		s.release = func(ctx context.Context, c store.Claim) error {
			s.unqueue(c.Lease)
			return s.Store.Release(ctx, c)
		}
	}},
	{"forgets a waiter soon", []string{
		"waiters/a waiter that asks again lives on",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrBusy) && c.Fair && c.Wait {
				c.TTL /= 2
				_, _ = s.Store.Acquire(ctx, c)
			}
			return g, err
		}
	}},
	{"ends a grant with the place that it had", []string{
		"waiters/a grant outlives the place that it took",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if first, waits := s.noted(c.Lease); waits {
				c.TTL = first.TTL
			}
			return s.acquireWaiting(ctx, c)
		}
	}},
	{"holds up a waiter whose owner holds", []string{
		"waiters/a waiter whose owner holds meanwhile enters again",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if first, waits := s.noted(c.Lease); waits && c.Fair {
				c.Owner += first.Lease
			}
			return s.acquireWaiting(ctx, c)
		}
	}},
	{"denies that a claim waited", []string{
		"release/a waiting claim is given up",
		"release/a fair waiting claim is given up",
	}, func(s *tampered) {
		s.acquire = s.acquireWaiting
		s.release = func(ctx context.Context, c store.Claim) error {
			err := s.Store.Release(ctx, c)
			if _, waits := s.noted(c.Lease); waits {
				return store.ErrLost
			}
			return err
		}
	}},
	{"forgets that a waiting claim was released", []string{
		"tombstones/a waiting claim that was released is refused",
		"tombstones/a fair waiting claim that was released is refused",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.acquireWaiting(ctx, c)
			if _, waited := s.noted(c.Lease); waited && errors.Is(err, store.ErrLost) {
				c.Lease += "+"
				return s.Store.Acquire(ctx, c)
			}
			return g, err
		}
	}},
	{"keeps the place of a claim beside its hold", []string{
		"release/a claim that waited and was granted is given up by one release",
		"release/a second release is told that the hold is lost",
	}, func(s *tampered) {
		s.acquire = s.acquireWaiting
		s.release = func(ctx context.Context, c store.Claim) error {
			_ = s.Store.Release(ctx, c)
			return nil
		}
	}},
}
