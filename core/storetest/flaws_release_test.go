package storetest_test

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// releaseFlaws lists flaws of releases, of tombstones and of Keep.
var releaseFlaws = []flaw{
	{"says released of what has expired", []string{
		"expiry/an expired hold cannot be released",
		"expiry/an expired hold does not disturb its successor",
	}, func(s *tampered) {
		s.acquire = s.acquireNotedByLease
		s.release = func(ctx context.Context, c store.Claim) error {
			err := s.Store.Release(ctx, c)
			if _, ok := s.noted(c.Key + c.Lease); ok && errors.Is(err, store.ErrLost) {
				return nil
			}
			return err
		}
	}},
	{"forgets the tombstone", []string{
		"tombstones/a claim that its release has overtaken is refused",
		"tombstones/a claim that its release has overtaken is refused while others hold",
		"tombstones/a fair waiting claim that was released is refused",
	}, func(s *tampered) {
		s.acquire = s.acquireNotedByLease
		s.release = func(ctx context.Context, c store.Claim) error {
			if _, ok := s.noted(c.Key + c.Lease); !ok {
				return store.ErrLost
			}
			s.forget(c.Key + c.Lease)
			return s.Store.Release(ctx, c)
		}
	}},
	{"plants a tombstone for the whole key", []string{
		"tombstones/a tombstone is for one lease only",
		"tombstones/a tombstone does not stop the owner from entering again",
		"release/a release of what was never seen is told that it is lost",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			err := s.Store.Release(ctx, c)
			if errors.Is(err, store.ErrLost) {
				s.note(c.Key, c)
			}
			return err
		}
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if _, dead := s.noted(c.Key); dead {
				return store.Grant{}, store.ErrLost
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"plants a tombstone for a lease under every key", []string{
		"tombstones/a tombstone is for one key only",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			err := s.Store.Release(ctx, c)
			if errors.Is(err, store.ErrLost) {
				s.note(c.Lease, c)
			}
			return err
		}
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if _, dead := s.noted(c.Lease); dead {
				return store.Grant{}, store.ErrLost
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"lets a tombstone stand for ever", []string{
		"tombstones/a tombstone ends after the TTL",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			c.TTL += time.Hour
			return s.Store.Release(ctx, c)
		}
	}},
	{"remembers a release that it was told to forget", []string{
		"release/a release that is to be remembered for no time is not",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			c.TTL = max(c.TTL, time.Minute)
			return s.Store.Release(ctx, c)
		}
	}},
	{"forgets a tombstone with a release for no time", []string{
		"tombstones/a tombstone stays when its lease is released for no time",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			if c.TTL == 0 {
				s.note(c.Lease, c)
			}
			return s.Store.Release(ctx, c)
		}
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if _, forgotten := s.noted(c.Lease); forgotten {
				c.Lease += "+"
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"clears the tombstones away with the last hold", []string{
		"tombstones/a tombstone stays while others come and go",
		"tombstones/a tombstone stays through the end of a shorter hold",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrLost) && s.count(c.Key, 0) > 0 {
				c.Lease += "+"
				return s.Store.Acquire(ctx, c)
			}
			if err == nil {
				s.count(c.Key, 1)
			}
			return g, err
		}
	}},
	{"ignores Keep", []string{
		"keep/what is kept is busy until its end, and free afterwards",
		"keep/a reader's share is kept as a share",
		"keep/kept permits are missing until their end",
		"runs/an answered key can be kept busy as well",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			c.Keep = 0
			return s.Store.Release(ctx, c)
		}
	}},
	{"keeps by leaving the hold to expire", []string{
		"keep/a key is kept for longer than the hold would have lasted",
		"keep/a key is kept for less than the hold would have lasted",
		"keep/what is kept cannot be extended",
		"keep/what is kept cannot be released",
		"keep/its last owner cannot enter what is kept",
		"keep/no claim can join a kept key",
		"keep/the owner's other hold lives on beside what is kept",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			if c.Keep > 0 {
				return s.extendSound(ctx, c)
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"frees what was kept later than it says", []string{
		"keep/poller of kept key",
		"keep/fair poller of kept key",
	}, func(s *tampered) {
		const late = 50 * time.Millisecond
		s.acquire = s.acquireBusy(func(b *store.BusyError) *store.BusyError {
			return &store.BusyError{RetryAfter: max(time.Millisecond, b.RetryAfter-late), Waiting: b.Waiting}
		})
		s.release = func(ctx context.Context, c store.Claim) error {
			if c.Keep > 0 {
				c.Keep += late
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"keeps what it does not hold", []string{
		"keep/a release with Keep of what is not held takes nothing",
		"keep/a release with Keep of a lost hold does not disturb the successor",
		"keep/a release with Keep can be repeated",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			err := s.Store.Release(ctx, c)
			if errors.Is(err, store.ErrLost) && c.Keep > 0 {
				c.Owner, c.Lease, c.TTL, c.Limit = "kept", c.Lease+"kept", c.Keep, 100*c.Limit
				_, _ = s.Store.Acquire(ctx, c)
			}
			return err
		}
	}},
	{"keeps the whole key for a reader", []string{
		"keep/a reader's share is kept as a share",
		"keep/kept permits are missing until their end",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			keep := c.Keep
			c.Keep = 0
			err := s.Store.Release(ctx, c)
			if err == nil && keep > 0 {
				c.Owner, c.Lease, c.TTL, c.Weight, c.Limit = "kept", c.Lease+"kept", keep, store.All, 100*store.All
				_, _ = s.Store.Acquire(ctx, c)
			}
			return err
		}
	}},
}
