package storetest_test

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

var tokenFlaws = []flaw{
	{"gives a token twice", []string{
		"tokens/tokens grow from release to release",
		"tokens/new token after nested holds",
		"tokens/tokens grow across readers",
		"concurrency/tokens in order of grants",
		"keep/tokens grow over a kept key",
	}, func(s *tampered) {
		s.acquire = s.acquireToken(func(s *tampered, _ store.Claim, token uint64) uint64 { return min(token, 1) })
	}},
	{"forgets the token at the release", []string{
		"tokens/tokens grow from release to release",
		"tokens/tokens grow over a forgotten key",
		"tokens/tokens stay above an earlier MinToken",
	}, func(s *tampered) {
		s.acquire = s.acquireToken(countedToken)
		s.release = func(ctx context.Context, c store.Claim) error {
			s.forget(c.Key)
			return s.Store.Release(ctx, c)
		}
	}},
	{"forgets the token at the expiry", []string{
		"tokens/tokens grow across expiry",
		"tokens/tokens stay above an expired MinToken",
	}, func(s *tampered) {
		s.acquire = s.acquireToken(func(s *tampered, c store.Claim, token uint64) uint64 {
			token = countedToken(s, c, token)
			time.AfterFunc(c.TTL, func() { s.forget(c.Key) })
			return token
		})
	}},
	{"gives a new token on repetition", []string{
		"acquire/repeated claim gets the same grant",
		"tokens/grant has at least MinToken",
		"extend/extension does not change tokens",
		"concurrency/same claim sent concurrently",
	}, func(s *tampered) {
		s.acquire = s.acquireToken(func(s *tampered, c store.Claim, token uint64) uint64 {
			return token + uint64(s.count(c.Lease, 1))
		})
	}},
	{"gives nested holds new tokens", []string{
		"tokens/same token for nested holds",
		"tokens/same token for a joining claim",
		"tokens/no token for a nested reader",
	}, func(s *tampered) {
		s.acquire = s.acquireToken(func(s *tampered, c store.Claim, token uint64) uint64 {
			defer s.lock()()
			if s.tokens[c.Lease] == 0 {
				s.tokens[c.Key] = max(s.tokens[c.Key]+1, token)
				s.tokens[c.Lease] = s.tokens[c.Key]
			}
			return s.tokens[c.Lease]
		})
	}},
	{"gives tokens to readers and permits", []string{
		"tokens/readers have no token",
		"tokens/permits have no token",
		"tokens/no token for a nested reader",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			g.Token = max(g.Token, 1)
			return g, err
		}
	}},
	{"ignores MinToken", []string{
		"tokens/grant has at least MinToken",
		"tokens/repeated claim raises the token",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			c.MinToken = 0
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"forgets MinToken after the grant", []string{
		"tokens/tokens stay above an earlier MinToken",
		"tokens/tokens stay above an expired MinToken",
		"tokens/repeated claim raises the token",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			least := c.MinToken
			c.MinToken = 0
			g, err := s.Store.Acquire(ctx, c)
			g.Token = max(g.Token, least)
			return g, err
		}
	}},
	{"takes MinToken for the token", []string{
		"tokens/MinToken below the next token",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if c.MinToken > 0 {
				g.Token = c.MinToken
			}
			return g, err
		}
	}},
	{"raises the token for refused claims", []string{
		"tokens/MinToken of a refused claim",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrBusy) {
				s.note(c.Key, c)
			} else if refused, ok := s.noted(c.Key); ok {
				g.Token = max(g.Token, refused.MinToken)
			}
			return g, err
		}
	}},
}

// acquireToken returns an Acquire that changes the tokens of exclusive grants.
func (s *tampered) acquireToken(change func(s *tampered, c store.Claim, token uint64) uint64) func(context.Context, store.Claim) (store.Grant, error) {
	return func(ctx context.Context, c store.Claim) (store.Grant, error) {
		g, err := s.Store.Acquire(ctx, c)
		if err == nil && c.Weight == store.All {
			g.Token = change(s, c, g.Token)
		}
		return g, err
	}
}

// countedToken returns the last token of the key plus 1, or c.MinToken if that is
// greater. After the key was forgotten, its tokens begin with 1 again.
func countedToken(s *tampered, c store.Claim, _ uint64) uint64 {
	defer s.lock()()
	s.tokens[c.Key] = max(s.tokens[c.Key]+1, c.MinToken)
	return s.tokens[c.Key]
}
