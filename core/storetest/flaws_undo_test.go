package storetest_test

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// undoFlaws lists flaws in the undoing of runs.
var undoFlaws = []flaw{
	{"counts undone runs", []string{
		"undo/undone first run leaves no record",
		"undo/undone run leaves the earlier record",
		"undo/undone run after a crash",
		"undo/undo of an expired run",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			c.Undo = false
			return s.Store.Release(ctx, c)
		}
	}},
	{"undoes only live holds", []string{
		"undo/undo of an expired run",
		"undo/undo beside another holder",
		"undo/undone run repeated after its expiry",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			if !s.holds(ctx, c) {
				c.Undo = false
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"undoes the last run", []string{
		"undo/undo after another run",
		"undo/undo of an unknown run",
		"undo/undo of a waiting claim",
		"undo/undo of a plain hold",
		"undo/run undone twice",
	}, func(s *tampered) {
		s.acquire = s.acquireUndone
		s.release = func(ctx context.Context, c store.Claim) error {
			if last, ok := s.noted(c.Key); ok && c.Undo && last.Lease != c.Lease {
				s.count(c.Key, 1)
			}
			if err := s.Store.Release(ctx, c); err != nil || !c.Undo {
				return err
			}
			s.note(c.Key, store.Claim{}) // forgets the claim whose run was undone
			return nil
		}
	}},
	{"undoes saved runs", []string{
		"undo/undo after the answer",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			err := s.Store.Release(ctx, c)
			if c.Record != nil && err == nil {
				s.note(c.Key, c)
			} else if last, ok := s.noted(c.Key); ok && c.Undo && last.Lease == c.Lease {
				s.count(c.Key, 1)
			}
			return err
		}
		s.acquire = s.acquireRecord(func(c store.Claim, r *store.Record) {
			if s.count(c.Key, 0) > 0 {
				*r = store.Record{Value: c.Record.Value, Attempt: 1, Retain: r.Retain}
			}
		})
	}},
	{"undoes again with each repetition", []string{
		"undo/run undone twice",
	}, func(s *tampered) {
		s.acquire = s.acquireUndone
		s.release = func(ctx context.Context, c store.Claim) error {
			if c.Undo && s.count(c.Key+c.Lease, 1) > 1 {
				s.count(c.Key, 1)
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"saves the earlier record again", []string{
		"undo/undone run leaves the retention",
		"undo/undone run of an expired record",
		"undo/record saved again after an undo",
	}, func(s *tampered) {
		s.acquire = s.acquireNotedRun
		s.release = func(ctx context.Context, c store.Claim) error {
			if run, ok := s.noted(c.Key + c.Lease); ok && c.Undo && run.Record.Attempt > 1 {
				c.Record = &store.Record{Value: run.Record.Value, Attempt: run.Record.Attempt - 1, Retain: run.Record.Retain}
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"forgets records with an undo", []string{
		"undo/undone run leaves the earlier record",
		"undo/undone run after a crash",
		"undo/undone run after a zero count",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			held := c
			held.Record = &store.Record{Value: []byte("forgotten")}
			if c.Undo && s.Store.Release(ctx, held) == nil {
				return nil
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"forgets records with zero count", []string{
		"undo/undone run after a zero count",
	}, func(s *tampered) {
		s.acquire = s.acquireNotedRun
		s.release = func(ctx context.Context, c store.Claim) error {
			if run, ok := s.noted(c.Key + c.Lease); ok && c.Undo && run.Record.Attempt == 1 {
				c.Record = &store.Record{Value: []byte("forgotten")}
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"leaves the value of undone runs", []string{
		"undo/undone first run leaves no record",
		"undo/undo of an expired run",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if err == nil && g.Record != nil && !g.Record.Done && g.Record.Attempt == 1 {
				if first, ok := s.noted(c.Key); ok {
					g.Record.Value = first.Record.Value
				} else {
					s.note(c.Key, c)
				}
			}
			return g, err
		}
	}},
	{"keeps the key of undone runs", []string{
		"undo/undone first run leaves no record",
		"undo/undo of a plain hold",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			if c.Undo && c.Keep == 0 {
				c.Keep = time.Hour
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"plants no tombstone for undone runs", []string{
		"undo/run overtaken by its undo",
		"undo/undone run repeated after its expiry",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			if c.Undo {
				c.TTL = 0
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"undoes instead of saving", []string{
		"undo/undo with a record",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			if c.Undo {
				c.Record = nil
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"counts a repeated claim after expiry", []string{
		"runs/repeated claim after its expiry",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			expired := !s.holds(ctx, c)
			g, err := s.Store.Acquire(ctx, c)
			if err != nil || g.Record == nil || g.Record.Done {
				return g, err
			}
			if expired && s.count(c.Key+c.Lease, 1) > 1 {
				s.count(c.Key, 1)
			}
			g.Record.Attempt += s.count(c.Key, 0)
			return g, err
		}
	}},
}

// holds reports whether the store has a hold of c. It does not change the hold.
func (s *tampered) holds(ctx context.Context, c store.Claim) bool {
	c.TTL = time.Millisecond
	return s.extendSound(ctx, c) == nil
}

// acquireUndone acquires c, and subtracts the count of the key from the attempt. It
// notes the last run under the key.
func (s *tampered) acquireUndone(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if err == nil && g.Record != nil && !g.Record.Done {
		s.note(c.Key, c)
		g.Record.Attempt -= s.count(c.Key, 0)
	}
	return g, err
}

// acquireNotedRun acquires c, and notes each run under its key and lease, with the
// granted record.
func (s *tampered) acquireNotedRun(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if err == nil && g.Record != nil {
		run := c
		run.Record = g.Record
		s.note(c.Key+c.Lease, run)
	}
	return g, err
}
