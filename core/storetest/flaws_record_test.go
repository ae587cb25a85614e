package storetest_test

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// recordFlaws lists flaws of stored answers, and of the number of runs.
var recordFlaws = []flaw{
	{"lets a stale holder overwrite the record", []string{
		"runs/a stale holder does not overwrite a run in progress",
		"runs/a stale holder does not overwrite its successor's answer",
		"runs/a run whose hold has expired saves nothing after another has begun and died",
		"runs/a stranger writes nothing",
		"saving/a repeated release with another answer is lost",
		"saving/a claim that only waits saves nothing",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			err := s.Store.Release(ctx, c)
			if c.Record != nil && errors.Is(err, store.ErrLost) {
				s.note(c.Key, c)
			}
			return err
		}
		s.acquire = s.acquireRecord(func(c store.Claim, r *store.Record) {
			if stale, ok := s.noted(c.Key); ok {
				*r = *stale.Record
			}
		})
	}},
	{"runs again what is finished", []string{
		"records/a finished record answers without claiming",
		"records/a finished record answers again and again",
		"records/a finished record answers a waiter",
		"runs/a run of readers or permits is a run",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if err == nil && g.Record != nil && g.Record.Done {
				again := c
				again.Record = nil
				g, err = s.Store.Acquire(ctx, again)
				g.Record = c.Record
			}
			return g, err
		}
	}},
	{"claims beside the answer", []string{
		"records/a finished record answers without claiming",
		"records/a finished record answers a waiter",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if err == nil && g.Record != nil && g.Record.Done {
				c.Record = nil
				_, _ = s.Store.Acquire(ctx, c)
			}
			return g, err
		}
	}},
	{"answers only when the key is free", []string{
		"records/a finished record answers while another owner holds the key",
		"runs/an answered key can be kept busy as well",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if c.Record == nil {
				return s.Store.Acquire(ctx, c)
			}
			probe := c
			probe.Record, probe.Wait, probe.Lease = nil, false, c.Lease+"probe"
			g, err := s.Store.Acquire(ctx, probe)
			if err != nil {
				return g, err
			}
			_ = s.Store.Release(ctx, probe)
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"answers claims without a record", []string{
		"records/a claim without a record is not answered by one",
		"records/a record outlives the claims of its key",
	}, func(s *tampered) {
		s.release = s.releaseNoted
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if last, ok := s.noted(c.Key); ok && c.Record == nil && last.Record.Done {
				return store.Grant{Owner: c.Owner, Record: last.Record}, nil
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"drops the record with the next claim", []string{
		"records/a record outlives the claims of its key",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if c.Record == nil {
				s.count(c.Key, 1)
			} else if s.count(c.Key, 0) > 0 {
				c.Key += "#next"
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"does not wake waiters for an answer", []string{
		"records/a finished record wakes all its waiters",
		"saving/a finished record wakes a fair run and a waiter for the key",
	}, func(s *tampered) {
		s.watch = s.watchGated
		s.release = func(ctx context.Context, c store.Claim) (err error) {
			s.gate(func() bool {
				err = s.Store.Release(ctx, c)
				return c.Record == nil || !c.Record.Done
			})
			return err
		}
	}},
	{"keeps records for ever", []string{
		"records/a record is kept for as long as it says",
		"records/a grant tells how long its record is kept",
		"saving/a record that is kept for no time is forgotten",
		"saving/a shorter record is kept for as long as it says",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			if c.Record != nil {
				r := *c.Record
				r.Retain += time.Hour
				c.Record = &r
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"keeps a record for as long as it first said", []string{
		"records/a record is kept from its last write on",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if err == nil && c.Record != nil && !g.Record.Done {
				s.note(c.Key, c)
			}
			return g, err
		}
		s.release = func(ctx context.Context, c store.Claim) error {
			if first, ok := s.noted(c.Key); ok && c.Record != nil {
				r := *c.Record
				r.Retain = first.Record.Retain
				c.Record = &r
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"keeps records as text", []string{
		"records/a record is kept as it is",
	}, func(s *tampered) {
		s.acquire = s.acquireRecord(func(_ store.Claim, r *store.Record) {
			r.Value = bytes.ToValidUTF8(r.Value, []byte("?"))
		})
	}},
	{"keeps short records only", []string{
		"records/a record is kept as it is",
	}, func(s *tampered) {
		s.acquire = s.acquireRecord(func(_ store.Claim, r *store.Record) {
			r.Value = r.Value[:min(len(r.Value), 65_535)]
		})
	}},
	{"keeps one record for all keys", []string{
		"records/a record belongs to one key",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			if c.Record != nil {
				s.note("", c)
			}
			return s.Store.Release(ctx, c)
		}
		s.acquire = s.acquireRecord(func(_ store.Claim, r *store.Record) {
			if last, ok := s.noted(""); ok {
				*r = *last.Record
			}
		})
	}},
	{"counts a repetition as a run", []string{
		"runs/the same claim again does not count as a run",
		"runs/the same claim again after its hold has expired does not count as a run",
	}, func(s *tampered) {
		s.acquire = s.acquireRecord(func(c store.Claim, r *store.Record) {
			r.Attempt += s.count(c.Lease, 1) - 1
		})
	}},
	{"counts a refused claim as a run", []string{
		"runs/a run that was refused does not count",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrBusy) {
				s.count(c.Key, 1)
			} else if g.Record != nil {
				g.Record.Attempt += s.count(c.Key, 0)
			}
			return g, err
		}
	}},
	{"counts no runs", []string{
		"runs/a run after a failed one is counted and finds what that left",
		"runs/a run after a crash is counted and finds the first value",
		"runs/a run after a release without a record is counted",
		"runs/a release sets the count as given",
	}, func(s *tampered) {
		s.acquire = s.acquireRecord(func(_ store.Claim, r *store.Record) { r.Attempt = 1 })
	}},
	{"begins every run with its own value", []string{
		"runs/a run after a failed one is counted and finds what that left",
		"runs/a run after a crash is counted and finds the first value",
		"runs/a run after a release without a record is counted",
	}, func(s *tampered) {
		s.acquire = s.acquireRecord(func(c store.Claim, r *store.Record) {
			if !r.Done {
				r.Value = c.Record.Value
			}
		})
	}},
	{"begins a run without its value", []string{
		"runs/a first run begins with the value of its claim",
	}, func(s *tampered) {
		s.acquire = s.acquireRecord(func(_ store.Claim, r *store.Record) {
			if !r.Done {
				r.Value = nil
			}
		})
	}},
	{"lets others run beside a run", []string{
		"runs/a run in progress keeps others out",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrBusy) && c.Record != nil {
				return store.Grant{Owner: c.Owner, Record: c.Record}, nil
			}
			return g, err
		}
	}},
	{"saves the answer as a failure", []string{
		"records/a finished record answers without claiming",
		"runs/a run of readers or permits is a run",
	}, func(s *tampered) {
		s.release = func(ctx context.Context, c store.Claim) error {
			if c.Record != nil {
				r := *c.Record
				r.Done = false
				c.Record = &r
			}
			return s.Store.Release(ctx, c)
		}
	}},
}

// acquireRecord returns an Acquire that changes the record of each grant.
func (s *tampered) acquireRecord(change func(c store.Claim, r *store.Record)) func(context.Context, store.Claim) (store.Grant, error) {
	return func(ctx context.Context, c store.Claim) (store.Grant, error) {
		g, err := s.Store.Acquire(ctx, c)
		if err == nil && g.Record != nil {
			change(c, g.Record)
		}
		return g, err
	}
}

// releaseNoted releases c. If the release saves a record, releaseNoted notes c under
// its key.
func (s *tampered) releaseNoted(ctx context.Context, c store.Claim) error {
	err := s.Store.Release(ctx, c)
	if err == nil && c.Record != nil {
		s.note(c.Key, c)
	}
	return err
}
