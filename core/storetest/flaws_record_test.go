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
	{"lets stale holders overwrite records", []string{
		"runs/stale holder beside a run",
		"runs/stale holder after an answer",
		"runs/expired run after another run",
		"runs/stranger writes nothing",
		"saving/second release with another answer",
		"saving/waiting claim saves nothing",
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
	{"repeats finished runs", []string{
		"records/finished record answers without claiming",
		"records/finished record answers repeatedly",
		"records/finished record answers a waiter",
		"runs/run of a permit",
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
		"records/finished record answers without claiming",
		"records/finished record answers a waiter",
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
	{"answers only on a free key", []string{
		"records/finished record of a held key",
		"runs/answer with Keep",
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
		"records/claim without a record",
		"records/record outlives later holds",
	}, func(s *tampered) {
		s.release = s.releaseNoted
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if last, ok := s.noted(c.Key); ok && c.Record == nil && last.Record.Done {
				return store.Grant{Owner: c.Owner, Record: last.Record}, nil
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"drops records with the next claim", []string{
		"records/record outlives later holds",
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
	{"wakes no waiter for an answer", []string{
		"records/finished record wakes all waiters",
		"saving/record wakes fair run and waiter",
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
	{"stores records for ever", []string{
		"records/record expires after Retain",
		"records/Retain is the time left",
		"saving/record with a Retain of zero",
		"saving/record with a shorter Retain",
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
	{"keeps the first Retain", []string{
		"records/last write renews the retention",
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
	{"stores records as text", []string{
		"records/record of any bytes",
	}, func(s *tampered) {
		s.acquire = s.acquireRecord(func(_ store.Claim, r *store.Record) {
			r.Value = bytes.ToValidUTF8(r.Value, []byte("?"))
		})
	}},
	{"stores short records only", []string{
		"records/record of any bytes",
	}, func(s *tampered) {
		s.acquire = s.acquireRecord(func(_ store.Claim, r *store.Record) {
			r.Value = r.Value[:min(len(r.Value), 65_535)]
		})
	}},
	{"stores one record for all keys", []string{
		"records/record belongs to one key",
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
		"runs/repeated claim is one run",
		"runs/repeated claim after its expiry",
	}, func(s *tampered) {
		s.acquire = s.acquireRecord(func(c store.Claim, r *store.Record) {
			r.Attempt += s.count(c.Lease, 1) - 1
		})
	}},
	{"counts refused claims as runs", []string{
		"runs/refused run is not counted",
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
		"runs/run after a failed run",
		"runs/run after a crash",
		"runs/run after a plain release",
		"runs/release sets the count",
	}, func(s *tampered) {
		s.acquire = s.acquireRecord(func(_ store.Claim, r *store.Record) { r.Attempt = 1 })
	}},
	{"begins runs with their own value", []string{
		"runs/run after a failed run",
		"runs/run after a crash",
		"runs/run after a plain release",
	}, func(s *tampered) {
		s.acquire = s.acquireRecord(func(c store.Claim, r *store.Record) {
			if !r.Done {
				r.Value = c.Record.Value
			}
		})
	}},
	{"begins a run without its value", []string{
		"runs/first run has its own value",
	}, func(s *tampered) {
		s.acquire = s.acquireRecord(func(_ store.Claim, r *store.Record) {
			if !r.Done {
				r.Value = nil
			}
		})
	}},
	{"lets others run beside a run", []string{
		"runs/run excludes other runs",
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
		"records/finished record answers without claiming",
		"runs/run of a permit",
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

func (s *tampered) releaseNoted(ctx context.Context, c store.Claim) error {
	err := s.Store.Release(ctx, c)
	if err == nil && c.Record != nil {
		s.note(c.Key, c)
	}
	return err
}
