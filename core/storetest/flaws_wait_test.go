package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// waitFlaws lists flaws of waiters and of their order.
var waitFlaws = []flaw{
	{"says busy without when to ask again", []string{
		"busy/busy says when to ask again",
		"busy/a claim behind a waiter is told when to ask again",
		"keep/what is kept says when to ask again",
	}, func(s *tampered) {
		s.acquire = s.acquireBusy(func(*store.BusyError) *store.BusyError { return &store.BusyError{} })
	}},
	{"counts no waiters", []string{
		"busy/a busy waiter learns the number of waiters",
		"busy/a busy fair waiter learns the number of waiters",
	}, func(s *tampered) {
		s.acquire = s.acquireBusy(func(b *store.BusyError) *store.BusyError { return &store.BusyError{RetryAfter: b.RetryAfter} })
	}},
	{"says to ask again after the whole TTL", []string{
		"busy/the time to ask again shrinks with what is left of the hold",
		"busy/the time to ask again is the first at which there may be room",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrBusy) {
				return g, &store.BusyError{RetryAfter: c.TTL}
			}
			return g, err
		}
	}},
	{"counts what is left from the first grant only", []string{
		"busy/the time to ask again grows with an extension",
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
	{"shows the key when it is busy", []string{
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
		"fair/waiters are admitted in the order in which they came",
		"fair/a fair claim that does not wait does not overtake",
		"fair/a fair reader does not get past a waiting writer",
		"fair/light claims do not starve a heavy one",
		"fair/an owner that holds no more waits like everybody",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			c.Fair = false
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"forgets a waiter's place when it asks again", []string{
		"fair/a waiter keeps its place when it asks again",
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
		"fair/an unfair claim does not wait for others",
		"fair/an unfair waiter holds up no fair claim",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			c.Fair = true
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"makes an owner wait for others before it enters again", []string{
		"fair/an owner enters again past the waiters",
		"fair/a claim joins past the waiters",
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
		"fair/waiters of one key hold up no other",
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
	{"admits fair readers one at a time", []string{
		"fair/fair readers that wait are admitted together",
		"wake-ups/fair readers behind a writer all get in by their wake-ups",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if c.Fair && c.Limit == store.All {
				c.Weight = store.All
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"lets no fair reader in while a writer waits, not even behind it", []string{
		"fair/a fair reader gets in behind the writer that it waited for",
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

// acquireWaiting acquires c, and notes c under its lease while c waits.
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
