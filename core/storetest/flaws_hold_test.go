package storetest_test

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// holdFlaws lists flaws in the admission of claims, and in the release of holds.
var holdFlaws = []flaw{
	{"admits two", []string{
		"admission/an exclusive hold keeps everybody out",
		"concurrency/goroutines that count under a mutex lose no count",
		"concurrency/of many that ask at once, one gets a free key",
		"acquire/a claim that was refused is granted when it asks again",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrBusy) && !c.Wait {
				c.Key += "#second"
				return s.Store.Acquire(ctx, c)
			}
			return g, err
		}
	}},
	{"looks first and takes then", []string{
		"concurrency/goroutines that count under a mutex lose no count",
		"concurrency/goroutines that count under one permit of one lose no count",
		"concurrency/goroutines never hold more permits than there are",
		"concurrency/goroutines never hold more permits than there are, of several each",
		"concurrency/readers are never in with a writer",
		"concurrency/of many that ask at once, one gets a free key",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if err != nil {
				return g, err
			}
			_ = s.Store.Release(ctx, c)
			time.Sleep(2 * time.Millisecond)
			if g, err = s.Store.Acquire(ctx, c); errors.Is(err, store.ErrBusy) {
				return store.Grant{Owner: c.Owner}, nil
			}
			return g, err
		}
		s.release = func(ctx context.Context, c store.Claim) error {
			_ = s.Store.Release(ctx, c)
			return nil
		}
	}},
	{"lets readers in with a writer", []string{
		"admission/a writer keeps readers out",
		"admission/the whole weight is not too heavy to add up",
		"concurrency/readers are never in with a writer",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if c.Weight == 1 && c.Limit == store.All {
				c.Limit *= 100
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"lets one reader in", []string{
		"admission/readers share a key",
		"expiry/a crashed reader is not kept alive by another's extension",
		"release/a release gives up one hold of several",
		"admission/a reader keeps a writer out, and so does the last of many",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if c.Limit == store.All {
				c.Weight = store.All
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"has one permit too many", []string{
		"admission/permits are given out up to their limit",
		"admission/one permit of one is a mutex",
		"admission/each claim brings its own limit",
		"concurrency/goroutines never hold more permits than there are",
		"concurrency/goroutines never hold more permits than there are, of several each",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			c.Limit = min(store.All, c.Limit+1)
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"lets the first claim of a key decide the limit", []string{
		"admission/each claim brings its own limit",
		"admission/an exclusive claim waits for every permit, and keeps them out",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if first, ok := s.noted(c.Key); ok {
				c.Limit = first.Limit
			}
			s.note(c.Key, c)
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"counts an owner's holds as one", []string{
		"admission/every hold of an owner counts",
		"admission/others' weight keeps an owner out, even one that holds",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			first, again := s.noted(c.Key + c.Owner)
			s.note(c.Key+c.Owner, c)
			if again && first.Lease != c.Lease && c.Limit < store.All {
				return store.Grant{Owner: c.Owner}, nil
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"releases without compare", []string{
		"release/a stranger cannot release",
		"release/a second release does not disturb the successor",
		"expiry/an expired hold does not disturb its successor",
		"keep/a release with Keep of a lost hold does not disturb the successor",
		"runs/a stale holder does not overwrite a run in progress",
	}, func(s *tampered) {
		s.acquire = s.acquireNoted
		s.release = func(ctx context.Context, c store.Claim) error {
			err := s.Store.Release(ctx, c)
			if holder, ok := s.noted(c.Key); ok && errors.Is(err, store.ErrLost) {
				c.Lease = holder.Lease
				return s.Store.Release(ctx, c)
			}
			return err
		}
	}},
	{"takes what it refuses", []string{
		"acquire/a refused claim takes nothing",
		"release/a refused claim that did not wait has nothing to release",
		"admission/a refused claim leaves room for a lighter one",
		"acquire/a free key is granted, and free again after the release",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrBusy) && !c.Wait {
				c.Limit *= 100
				_, _ = s.Store.Acquire(ctx, c)
			}
			return g, err
		}
	}},
}

// acquireNoted acquires c. If c is granted, acquireNoted notes c under its key.
func (s *tampered) acquireNoted(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if err == nil {
		s.note(c.Key, c)
	}
	return g, err
}
