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
		"admission/exclusive hold keeps everybody out",
		"concurrency/count under a mutex",
		"concurrency/one of many concurrent claims",
		"acquire/refused claim is granted later",
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
	{"checks first and acquires later", []string{
		"concurrency/count under a mutex",
		"concurrency/count under one permit",
		"concurrency/permits never exceed their limit",
		"concurrency/permits of several weights",
		"concurrency/readers never beside a writer",
		"concurrency/one of many concurrent claims",
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
		"admission/writer keeps readers out",
		"admission/several holds of weight All",
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
		"expiry/extension beside a crashed reader",
		"release/release of one hold of several",
		"admission/readers keep a writer out",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if c.Limit == store.All {
				c.Weight = store.All
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"has one permit too many", []string{
		"admission/permits up to the limit",
		"admission/one permit is a mutex",
		"admission/each claim brings its own limit",
		"concurrency/permits never exceed their limit",
		"concurrency/permits of several weights",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			c.Limit = min(store.All, c.Limit+1)
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"uses the first limit only", []string{
		"admission/each claim brings its own limit",
		"admission/exclusive claim excludes permits",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if first, ok := s.noted(c.Key); ok {
				c.Limit = first.Limit
			}
			s.note(c.Key, c)
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"counts nested holds as one", []string{
		"admission/every hold of an owner counts",
		"admission/weight of others excludes a holder",
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
		"release/stranger cannot release",
		"release/second release beside a successor",
		"expiry/expired hold beside its successor",
		"keep/release with Keep beside a successor",
		"runs/stale holder beside a run",
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
	{"holds refused claims", []string{
		"acquire/refused claim takes nothing",
		"release/release of a refused claim",
		"admission/lighter claim after a refused one",
		"acquire/acquire and release a free key",
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

func (s *tampered) acquireNoted(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if err == nil {
		s.note(c.Key, c)
	}
	return g, err
}
