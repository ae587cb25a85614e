package storetest_test

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// undoFlaws lists flaws in the undoing of runs.
var undoFlaws = []flaw{
	{"counts what was undone", []string{
		"undo/a first run that is undone leaves no record",
		"undo/a second run that is undone leaves what it found",
		"undo/a run after a crash that is undone leaves the count of the crash",
		"undo/a run is undone after its hold has expired",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			c.Undo = false
			return s.Store.Release(ctx, c)
		}
	}},
	{"undoes only what is held", []string{
		"undo/a run is undone after its hold has expired",
		"undo/a run is undone after its hold has expired while another owner holds the key",
		"undo/a run that is undone after its hold has expired is refused when it comes again",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			if !s.holds(ctx, c) {
				c.Undo = false
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"undoes whatever run was the last", []string{
		"undo/a run is not undone after another one has begun",
		"undo/an undo of what was never seen touches no record",
		"undo/an undo of a claim that only waits touches no record",
		"undo/an undo leaves a hold that began no run as a release does",
		"undo/a run that is undone twice is taken back once",
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
	{"undoes what was saved", []string{
		"undo/a run is not undone after its answer was saved",
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
		"undo/a run that is undone twice is taken back once",
	}, func(s *tampered) {
		s.acquire = s.acquireUndone
		s.release = func(ctx context.Context, c store.Claim) error {
			if c.Undo && s.count(c.Key+c.Lease, 1) > 1 {
				s.count(c.Key, 1)
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"saves anew what an undone run has found", []string{
		"undo/a run that is undone leaves a record its end",
		"undo/a run that is undone after the end of what it found leaves no record",
		"undo/a run that is undone leaves what was saved before it to callers that save it again",
	}, func(s *tampered) {
		s.acquire = s.acquireNotedRun
		s.release = func(ctx context.Context, c store.Claim) error {
			if run, ok := s.noted(c.Key + c.Lease); ok && c.Undo && run.Record.Attempt > 1 {
				c.Record = &store.Record{Value: run.Record.Value, Attempt: run.Record.Attempt - 1, Retain: run.Record.Retain}
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"forgets the record of what was undone", []string{
		"undo/a second run that is undone leaves what it found",
		"undo/a run after a crash that is undone leaves the count of the crash",
		"undo/a run that is undone leaves a record that counts none",
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
	{"forgets a record that counts no run", []string{
		"undo/a run that is undone leaves a record that counts none",
	}, func(s *tampered) {
		s.acquire = s.acquireNotedRun
		s.release = func(ctx context.Context, c store.Claim) error {
			if run, ok := s.noted(c.Key + c.Lease); ok && c.Undo && run.Record.Attempt == 1 {
				c.Record = &store.Record{Value: []byte("forgotten")}
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"leaves the value of what was undone", []string{
		"undo/a first run that is undone leaves no record",
		"undo/a run is undone after its hold has expired",
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
	{"keeps the key of what was undone", []string{
		"undo/a first run that is undone leaves no record",
		"undo/an undo leaves a hold that began no run as a release does",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			if c.Undo && c.Keep == 0 {
				c.Keep = time.Hour
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"plants no tombstone for what is undone", []string{
		"undo/a run that its undo has overtaken is refused and does not count",
		"undo/a run that is undone after its hold has expired is refused when it comes again",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			if c.Undo {
				c.TTL = 0
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"undoes instead of saving", []string{
		"undo/an undo that saves a record saves it",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			if c.Undo {
				c.Record = nil
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"counts a run that goes on after its hold has expired", []string{
		"runs/the same claim again after its hold has expired does not count as a run",
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
