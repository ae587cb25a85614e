package storetest_test

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// releaseFlaws lists flaws of releases, of tombstones and of Keep.
var releaseFlaws = []flaw{
	{"reports a release after an expiry", []string{
		"expiry/expired hold cannot be released",
		"expiry/expired hold beside its successor",
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
		"tombstones/claim overtaken by its release",
		"tombstones/overtaken claim of a held key",
		"tombstones/released fair waiter is refused",
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
	{"plants tombstones for whole keys", []string{
		"tombstones/tombstone of another lease",
		"tombstones/owner enters beside a tombstone",
		"release/release of an unknown lease",
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
	{"plants tombstones under every key", []string{
		"tombstones/tombstone of another key",
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
		"tombstones/tombstone expires after its TTL",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			c.TTL += time.Hour
			return s.Store.Release(ctx, c)
		}
	}},
	{"plants tombstones without a TTL", []string{
		"release/release with a TTL of zero",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			c.TTL = max(c.TTL, time.Minute)
			return s.Store.Release(ctx, c)
		}
	}},
	{"forgets tombstones without a TTL", []string{
		"tombstones/tombstone outlives a TTL of zero",
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
	{"clears tombstones with the last hold", []string{
		"tombstones/tombstone outlives other holds",
		"tombstones/tombstone outlives an expired hold",
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
		"keep/kept key becomes free on time",
		"keep/kept share of a reader",
		"keep/kept permits stay taken",
		"runs/answer with Keep",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			c.Keep = 0
			return s.Store.Release(ctx, c)
		}
	}},
	{"keeps by leaving the hold", []string{
		"keep/keep longer than the hold",
		"keep/keep shorter than the hold",
		"keep/kept key cannot be extended",
		"keep/kept key cannot be released",
		"keep/re-entry into a kept key",
		"keep/join of a kept key",
		"keep/other hold beside a kept one",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			if c.Keep > 0 {
				return s.extendSound(ctx, c)
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"frees kept keys late", []string{
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
	{"keeps keys without a hold", []string{
		"keep/release with Keep without a hold",
		"keep/release with Keep beside a successor",
		"keep/repeated release with Keep",
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
	{"keeps whole keys for a reader", []string{
		"keep/kept share of a reader",
		"keep/kept permits stay taken",
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
