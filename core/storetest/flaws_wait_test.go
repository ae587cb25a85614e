package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

var waitFlaws = []flaw{
	{"returns no RetryAfter", []string{
		"busy/RetryAfter is within the TTL",
		"busy/RetryAfter behind a fair waiter",
		"keep/RetryAfter of a kept key",
	}, func(s *tampered) {
		s.acquire = s.acquireBusy(func(*store.BusyError) *store.BusyError { return &store.BusyError{} })
	}},
	{"counts no waiters", []string{
		"busy/Waiting counts waiters",
		"busy/Waiting counts fair waiters",
	}, func(s *tampered) {
		s.acquire = s.acquireBusy(func(b *store.BusyError) *store.BusyError { return &store.BusyError{RetryAfter: b.RetryAfter} })
	}},
	{"returns the TTL as RetryAfter", []string{
		"busy/RetryAfter shrinks with the hold",
		"busy/RetryAfter until the first expiry",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrBusy) {
				return g, &store.BusyError{RetryAfter: c.TTL}
			}
			return g, err
		}
	}},
	{"counts RetryAfter from the first grant", []string{
		"busy/RetryAfter grows with an extension",
	}, func(s *tampered) {
		var end time.Time
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrBusy) {
				return g, &store.BusyError{RetryAfter: time.Until(end) - 20*c.TTL}
			}
			if err == nil {
				end = time.Now().Add(c.TTL)
			}
			return g, err
		}
	}},
	{"shows the key of a refusal", []string{
		"busy/busy does not show the key",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrBusy) {
				err = fmt.Errorf("%s: %w", c.Key, err)
			}
			return g, err
		}
	}},
	{"lets fair claims barge", []string{
		"fair/waiters enter in order",
		"fair/no overtaking without Wait",
		"fair/reader behind a waiting writer",
		"fair/heavy claim before light ones",
		"fair/owner waits after its release",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			c.Fair = false
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"forgets places on repetition", []string{
		"fair/repeated claim keeps its place",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if !c.Fair {
				return s.Store.Acquire(ctx, c)
			}
			first, second := c, c
			first.Lease += "1"
			second.Lease += "2"
			if s.count(c.Lease, 0) > 0 && s.extendSound(ctx, first) != nil {
				_ = s.Store.Release(ctx, first)
				s.note(c.Lease, second)
				return s.Store.Acquire(ctx, second)
			}
			s.count(c.Lease, 1)
			s.note(c.Lease, first)
			return s.Store.Acquire(ctx, first)
		}
		s.extend = extendEach(func(ctx context.Context, c store.Claim) error {
			return s.extendSound(ctx, s.renamed(c))
		})
		s.release = func(ctx context.Context, c store.Claim) error { return s.Store.Release(ctx, s.renamed(c)) }
		s.watch = func(ctx context.Context, c store.Claim) (<-chan struct{}, error) {
			return s.Store.Watch(ctx, s.renamed(c))
		}
	}},
	{"makes every claim fair", []string{
		"fair/unfair claim overtakes a waiter",
		"fair/unfair waiter delays no fair claim",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			c.Fair = true
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"makes re-entry wait for others", []string{
		"fair/owner enters past the waiters",
		"fair/claim joins past the waiters",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if line := s.queued(); c.Fair && len(line) > 0 && line[0].Lease != c.Lease {
				return store.Grant{}, &store.BusyError{RetryAfter: time.Second}
			}
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrBusy) && c.Fair {
				s.queue(c)
			}
			return g, err
		}
	}},
	{"has one line for all keys", []string{
		"fair/waiters of another key",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if line := s.queued(); len(line) > 0 && c.Key != line[0].Key {
				return store.Grant{}, &store.BusyError{RetryAfter: time.Second}
			}
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrBusy) && c.Wait && c.Fair {
				s.queue(c)
			}
			return g, err
		}
	}},
	{"admits one fair reader at once", []string{
		"fair/waiting readers enter together",
		"wake-ups/wake-ups admit all fair readers",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if c.Fair && c.Limit == store.All {
				c.Weight = store.All
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"lets no reader behind a writer", []string{
		"fair/reader enters after the writer",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if line := s.queued(); c.Fair && c.Weight == 1 && len(line) > 0 {
				return store.Grant{}, &store.BusyError{RetryAfter: time.Second}
			}
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrBusy) && c.Fair && c.Weight == store.All {
				s.queue(c)
			}
			return g, err
		}
	}},
}

// acquireBusy returns an Acquire that changes each *store.BusyError.
func (s *tampered) acquireBusy(change func(*store.BusyError) *store.BusyError) func(context.Context, store.Claim) (store.Grant, error) {
	return func(ctx context.Context, c store.Claim) (store.Grant, error) {
		g, err := s.Store.Acquire(ctx, c)
		var busy *store.BusyError
		if errors.As(err, &busy) {
			err = change(busy)
		}
		return g, err
	}
}

func (s *tampered) acquireWaiting(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	switch {
	case err == nil:
		s.forget(c.Lease)
	case errors.Is(err, store.ErrBusy) && c.Wait:
		s.note(c.Lease, c)
	}
	return g, err
}

// renamed returns c with the lease of the claim that is noted under c's lease.
func (s *tampered) renamed(c store.Claim) store.Claim {
	if known, ok := s.noted(c.Lease); ok {
		c.Lease = known.Lease
	}
	return c
}
