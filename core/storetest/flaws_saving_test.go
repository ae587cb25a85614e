package storetest_test

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// savingFlaws lists flaws in the step that saves a record.
var savingFlaws = []flaw{
	{"takes a second saving for a stale one", []string{
		"saving/saving an answer twice is answered as once",
		"saving/saving an answer twice is answered as once while another owner holds the key",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			if c.Record != nil && s.count(c.Key+c.Lease, 1) > 1 {
				return store.ErrLost
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"takes a stale saving for a second one", []string{
		"saving/saving an answer twice is not answered as once when another run has begun",
		"saving/a repeated release with another answer is lost",
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
	{"forgets that it has saved when another owner takes the key", []string{
		"saving/saving an answer twice is answered as once while another owner holds the key",
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
	{"saves only what is held", []string{
		"runs/a run whose hold has expired saves its answer if no other has begun",
		"runs/a run that was given back saves its answer if no other has begun",
		"runs/a run whose hold has expired saves that it failed",
		"runs/a run whose hold has expired saves its answer after another was undone",
		"runs/an answer that is saved after its hold has expired wakes all its waiters",
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
	{"saves for a run whose record has ended", []string{
		"runs/a run whose hold has expired saves nothing after its record has ended",
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
	{"forgets the hold that began the run before one that is undone", []string{
		"runs/a run whose hold has expired saves its answer after another was undone",
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
	{"keeps the key busy with every saving", []string{
		"saving/saving an answer twice keeps the key busy once",
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
	{"answers a hold that has saved before", []string{
		"saving/a release without a record is lost after one with",
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
	{"says that it has saved when it was only told to stop waiting", []string{
		"saving/a claim that only waits saves nothing",
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
	{"saves only what began with a record", []string{
		"saving/a hold that began without a record saves one",
	}, func(s *tampered) {
		s.acquire = s.acquireNotedByLease
		s.release = func(ctx context.Context, c store.Claim) error {
			if begun, ok := s.noted(c.Key + c.Lease); ok && begun.Record == nil {
				c.Record = nil
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"lets a record end with an extended hold", []string{
		"saving/an extension does not shorten the life of a record",
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
	{"lets a run end with its record", []string{
		"saving/a run outlasts its record",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if c.Record != nil {
				c.TTL = min(c.TTL, c.Record.Retain)
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"gives a fair run no place", []string{
		"saving/a fair run that waits has its place",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if c.Record != nil {
				c.Fair = false
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"tells the retention of a record instead of what is left", []string{
		"records/a grant tells how long its record is kept",
	}, func(s *tampered) {
		s.acquire = s.acquireRecord(func(c store.Claim, r *store.Record) { r.Retain = c.Record.Retain })
	}},
	{"wakes one of the waiters for an answer", []string{
		"records/a finished record wakes all its waiters",
		"saving/a finished record wakes a fair run and a waiter for the key",
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
