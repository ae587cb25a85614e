package storetest_test

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// savingFlaws lists flaws in the step that saves a record.
var savingFlaws = []flaw{
	{"refuses a second saving", []string{
		"saving/answer saved twice",
		"saving/answer saved twice beside a holder",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			if c.Record != nil && s.count(c.Key+c.Lease, 1) > 1 {
				return store.ErrLost
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"accepts a stale saving", []string{
		"saving/failure saved again after a run",
		"saving/second release with another answer",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			_, saved := s.noted(c.Key + c.Lease)
			err := s.Store.Release(ctx, c)
			switch {
			case c.Record == nil:
			case err == nil:
				s.note(c.Key+c.Lease, c)
			case errors.Is(err, store.ErrLost) && saved:
				return nil
			}
			return err
		}
	}},
	{"forgets a saving after another hold", []string{
		"saving/answer saved twice beside a holder",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if err == nil && c.Record == nil {
				s.note(c.Key, c)
			}
			return g, err
		}
		s.release = func(ctx context.Context, c store.Claim) error {
			if last, held := s.noted(c.Key); held && c.Record != nil && last.Lease != c.Lease {
				return store.ErrLost
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"saves only for live holds", []string{
		"runs/expired run saves its answer",
		"runs/released run saves its answer",
		"runs/expired run saves its failure",
		"runs/expired run after an undone run",
		"runs/expired run wakes its waiters",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			if c.Record != nil && !s.holds(ctx, c) {
				c.Record = nil
				_ = s.Store.Release(ctx, c)
				return store.ErrLost
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"saves for an expired record", []string{
		"runs/expired run with expired record",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			err := s.Store.Release(ctx, c)
			if c.Record == nil || !errors.Is(err, store.ErrLost) {
				return err
			}
			late := c
			late.Lease, late.TTL = c.Lease+"late", time.Millisecond
			if g, err := s.Store.Acquire(ctx, late); err != nil || g.Record.Attempt > 1 {
				return store.ErrLost
			}
			late.Record = c.Record
			return s.Store.Release(ctx, late)
		}
	}},
	{"forgets the run before an undo", []string{
		"runs/expired run after an undone run",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			if c.Undo {
				s.count(c.Key, 1)
			} else if c.Record != nil && s.count(c.Key, 0) > 0 && !s.holds(ctx, c) {
				return store.ErrLost
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"keeps the key with every saving", []string{
		"saving/answer with Keep saved twice",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			err := s.Store.Release(ctx, c)
			if err == nil && c.Keep > 0 {
				c.Owner, c.Lease, c.TTL, c.Limit, c.Record = "kept", c.Lease+"kept", c.Keep, 100*c.Limit, nil
				_, _ = s.Store.Acquire(ctx, c)
			}
			return err
		}
	}},
	{"answers a plain release as saved", []string{
		"saving/plain release after an answer",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			if last, ok := s.noted(c.Key + c.Lease); ok && c.Record == nil {
				c = last
			}
			err := s.Store.Release(ctx, c)
			if err == nil && c.Record != nil {
				s.note(c.Key+c.Lease, c)
			}
			return err
		}
	}},
	{"reports a saving for a waiter", []string{
		"saving/waiting claim saves nothing",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrBusy) && c.Wait {
				s.note(c.Key+c.Lease, c)
			}
			return g, err
		}
		s.release = func(ctx context.Context, c store.Claim) error {
			if _, waits := s.noted(c.Key + c.Lease); waits {
				c.Record = nil
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"saves only for runs", []string{
		"saving/plain hold saves a record",
	}, func(s *tampered) {
		s.acquire = s.acquireNotedByLease
		s.release = func(ctx context.Context, c store.Claim) error {
			if begun, ok := s.noted(c.Key + c.Lease); ok && begun.Record == nil {
				c.Record = nil
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"shortens records by extending", []string{
		"saving/extension never shortens a record",
	}, func(s *tampered) {
		s.extend = extendEach(func(ctx context.Context, c store.Claim) error {
			s.count(c.Key, 1)
			return s.extendSound(ctx, c)
		})
		s.acquire = s.acquireRecord(func(c store.Claim, r *store.Record) {
			if s.count(c.Key, 0) > 0 {
				r.Attempt, r.Value = 1, c.Record.Value
			}
		})
	}},
	{"expires a run with its record", []string{
		"saving/run outlasts its record",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if c.Record != nil {
				c.TTL = min(c.TTL, c.Record.Retain)
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"gives a fair run no place", []string{
		"saving/waiting fair run has its place",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if c.Record != nil {
				c.Fair = false
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"returns the whole retention", []string{
		"records/Retain is the time left",
	}, func(s *tampered) {
		s.acquire = s.acquireRecord(func(c store.Claim, r *store.Record) { r.Retain = c.Record.Retain })
	}},
	{"wakes one waiter for an answer", []string{
		"records/finished record wakes all waiters",
		"saving/record wakes fair run and waiter",
	}, func(s *tampered) {
		s.watch = s.watchGated
		s.release = func(ctx context.Context, c store.Claim) (err error) {
			s.gateSome(func() (pass int) {
				err = s.Store.Release(ctx, c)
				return 1
			})
			return err
		}
	}},
}
