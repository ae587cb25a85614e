package storetest_test

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

var placeFlaws = []flaw{
	{"gives a place without Wait", []string{
		"fair/no place without Wait",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			c.Wait = true
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"keeps places of admitted claims", []string{
		"fair/waiters enter in order",
		"fair/fair claim of a free key",
		"waiters/second of three waiters leaves",
		"concurrency/count under a fair mutex",
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
	{"keeps places of leaving waiters", []string{
		"waiters/leaving waiter frees its place",
		"waiters/second of three waiters leaves",
		"wake-ups/woken fair waiter leaves",
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
		"waiters/dead waiter forgotten after its TTL",
		"waiters/dead waiter forgotten after WaiterLife",
		"waiters/forgotten waiter comes last",
		"wake-ups/wake-ups admit all fair writers",
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
		"waiters/repeated claim renews its place",
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
	{"expires a grant with its place", []string{
		"waiters/grant outlives its place",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if first, waits := s.noted(c.Lease); waits {
				c.TTL = first.TTL
			}
			return s.acquireWaiting(ctx, c)
		}
	}},
	{"delays a waiter whose owner holds", []string{
		"waiters/waiter whose owner holds the key",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if first, waits := s.noted(c.Lease); waits && c.Fair {
				c.Owner += first.Lease
			}
			return s.acquireWaiting(ctx, c)
		}
	}},
	{"denies that a claim waited", []string{
		"release/release of a waiting claim",
		"release/release of a fair waiter",
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
	{"forgets releases of waiting claims", []string{
		"tombstones/released waiting claim is refused",
		"tombstones/released fair waiter is refused",
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
	{"keeps a place beside the hold", []string{
		"release/release of an admitted waiter",
		"release/second release gets ErrLost",
	}, func(s *tampered) {
		s.acquire = s.acquireWaiting
		s.release = func(ctx context.Context, c store.Claim) error {
			_ = s.Store.Release(ctx, c)
			return nil
		}
	}},
}
