package storetest_test

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/lockkit/lockkit/core"
)

// tokenFlaws are about fencing, and about handing a key over.
var tokenFlaws = []flaw{
	{"gives a token twice", []string{
		"tokens/tokens grow from release to release",
		"tokens/a new token follows the holds of an owner",
		"tokens/tokens grow across readers",
		"concurrency/tokens grow in the order of the grants",
		"handover/a handover gives a new token",
		"keep/tokens grow over what was kept",
	}, func(s *tampered) {
		s.acquire = s.acquireToken(func(s *tampered, _ core.Claim, token uint64) uint64 { return min(token, 1) })
		s.handover = func(ctx context.Context, from, to core.Claim) (core.Grant, error) {
			g, err := s.Store.Handover(ctx, from, to)
			g.Token = 1
			return g, err
		}
	}},
	{"forgets the last token with the release", []string{
		"tokens/tokens grow from release to release",
		"tokens/tokens grow while the key is forgotten",
		"tokens/tokens stay above one that was asked for",
	}, func(s *tampered) {
		s.acquire = s.acquireToken(countedToken)
		s.release = func(ctx context.Context, c core.Claim) error {
			s.forget(c.Key)
			return s.Store.Release(ctx, c)
		}
	}},
	{"forgets the last token when the hold expires", []string{
		"tokens/tokens grow across expiry",
		"tokens/tokens stay above one that was asked for by a hold that expired",
	}, func(s *tampered) {
		s.acquire = s.acquireToken(func(s *tampered, c core.Claim, token uint64) uint64 {
			token = countedToken(s, c, token)
			time.AfterFunc(c.TTL, func() { s.forget(c.Key) })
			return token
		})
	}},
	{"gives a new token on repetition", []string{
		"acquire/the same claim again gives the same grant",
		"tokens/a claim gets at least the token that it asks for",
		"extend/an extension does not change the token",
		"concurrency/a claim that is sent many times at once is one hold",
	}, func(s *tampered) {
		s.acquire = s.acquireToken(func(s *tampered, c core.Claim, token uint64) uint64 {
			return token + uint64(s.count(c.Lease, 1))
		})
	}},
	{"gives every hold of an owner its own token", []string{
		"tokens/a token is the same for all holds of an owner",
		"tokens/a token is the same for who joins",
		"tokens/a reader inside an exclusive hold has no token",
	}, func(s *tampered) {
		s.acquire = s.acquireToken(func(s *tampered, c core.Claim, token uint64) uint64 {
			defer s.lock()()
			if s.tokens[c.Lease] == 0 {
				s.tokens[c.Key] = max(s.tokens[c.Key]+1, token)
				s.tokens[c.Lease] = s.tokens[c.Key]
			}
			return s.tokens[c.Lease]
		})
	}},
	{"gives a token to readers and permits", []string{
		"tokens/readers have no token",
		"tokens/permits have no token",
		"tokens/a reader inside an exclusive hold has no token",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c core.Claim) (core.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			g.Token = max(g.Token, 1)
			return g, err
		}
	}},
	{"ignores MinToken", []string{
		"tokens/a claim gets at least the token that it asks for",
		"tokens/asking again for a higher token raises it",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c core.Claim) (core.Grant, error) {
			c.MinToken = 0
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"forgets MinToken after the grant", []string{
		"tokens/tokens stay above one that was asked for",
		"tokens/tokens stay above one that was asked for by a hold that expired",
		"tokens/asking again for a higher token raises it",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c core.Claim) (core.Grant, error) {
			least := c.MinToken
			c.MinToken = 0
			g, err := s.Store.Acquire(ctx, c)
			g.Token = max(g.Token, least)
			return g, err
		}
	}},
	{"takes MinToken for the token", []string{
		"tokens/asking for less than the next token changes nothing",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c core.Claim) (core.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if c.MinToken > 0 {
				g.Token = c.MinToken
			}
			return g, err
		}
	}},
	{"raises the token for a claim that it refuses", []string{
		"tokens/a refused claim does not use up what it asks for",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c core.Claim) (core.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, core.ErrBusy) {
				s.note(c.Key, c)
			} else if refused, ok := s.noted(c.Key); ok {
				g.Token = max(g.Token, refused.MinToken)
			}
			return g, err
		}
	}},
	{"begins its tokens at the end", []string{
		"tokens/tokens fit a signed 64-bit column",
	}, func(s *tampered) {
		s.acquire = s.acquireToken(func(_ *tampered, _ core.Claim, token uint64) uint64 { return token + math.MaxInt64 })
	}},
	{"hands over without a new token", []string{
		"handover/a handover gives a new token",
	}, func(s *tampered) {
		s.handover = func(ctx context.Context, from, to core.Claim) (core.Grant, error) {
			old, _ := s.Store.Acquire(ctx, from)
			g, err := s.Store.Handover(ctx, from, to)
			g.Token = old.Token
			return g, err
		}
	}},
	{"hands over what is not held", []string{
		"handover/a handover of what is not held does nothing",
	}, func(s *tampered) {
		s.handover = func(ctx context.Context, from, to core.Claim) (core.Grant, error) {
			_ = s.Store.Release(ctx, from)
			return s.Store.Acquire(ctx, to)
		}
	}},
	{"hands over without compare", []string{
		"handover/a handover of a lost hold does not disturb the successor",
	}, func(s *tampered) {
		s.acquire = s.acquireNoted
		s.handover = func(ctx context.Context, from, to core.Claim) (core.Grant, error) {
			if holder, ok := s.noted(from.Key); ok {
				from = holder
			}
			return s.Store.Handover(ctx, from, to)
		}
	}},
	{"hands over and leaves the old hold", []string{
		"handover/a handover passes the key on",
		"handover/a fair handover does not get past those who wait",
	}, func(s *tampered) {
		s.handover = func(ctx context.Context, from, to core.Claim) (core.Grant, error) {
			if err := s.extendSound(ctx, from); err != nil {
				return core.Grant{}, err
			}
			to.Limit *= 100
			return s.Store.Acquire(ctx, to)
		}
	}},
	{"hands over past those who wait", []string{
		"handover/a fair handover does not get past those who wait",
		"handover/a handover that leaves the key free wakes who waits",
	}, func(s *tampered) {
		s.handover = func(ctx context.Context, from, to core.Claim) (core.Grant, error) {
			to.Fair = false
			return s.Store.Handover(ctx, from, to)
		}
	}},
	{"hands over for what was left of the old hold", []string{
		"handover/a handed-over hold lasts for its own TTL",
	}, func(s *tampered) {
		s.handover = func(ctx context.Context, from, to core.Claim) (core.Grant, error) {
			to.TTL = from.TTL
			return s.Store.Handover(ctx, from, to)
		}
	}},
	{"hands over all holds of an owner", []string{
		"handover/a handover of one hold of several releases only that",
	}, func(s *tampered) {
		s.acquire = s.acquireQueued
		s.handover = func(ctx context.Context, from, to core.Claim) (core.Grant, error) {
			for _, q := range s.queued() {
				if q.Key == from.Key && q.Lease != from.Lease {
					_ = s.Store.Release(ctx, q)
				}
			}
			return s.Store.Handover(ctx, from, to)
		}
	}},
	{"hands over the whole key", []string{
		"handover/a handover between readers leaves the others in",
	}, func(s *tampered) {
		s.handover = func(ctx context.Context, from, to core.Claim) (core.Grant, error) {
			to.Weight = core.All
			return s.Store.Handover(ctx, from, to)
		}
	}},
	{"hands over to the end of the line", []string{
		"handover/a fair handover to who is first in line is granted",
	}, func(s *tampered) {
		s.handover = func(ctx context.Context, from, to core.Claim) (core.Grant, error) {
			to.Lease += "+"
			return s.Store.Handover(ctx, from, to)
		}
	}},
}

// acquireToken changes the tokens of exclusive grants.
func (s *tampered) acquireToken(change func(s *tampered, c core.Claim, token uint64) uint64) func(context.Context, core.Claim) (core.Grant, error) {
	return func(ctx context.Context, c core.Claim) (core.Grant, error) {
		g, err := s.Store.Acquire(ctx, c)
		if err == nil && c.Weight == core.All {
			g.Token = change(s, c, g.Token)
		}
		return g, err
	}
}

// countedToken is the number of grants since the key was forgotten.
func countedToken(s *tampered, c core.Claim, _ uint64) uint64 {
	defer s.lock()()
	s.tokens[c.Key] = max(s.tokens[c.Key]+1, c.MinToken)
	return s.tokens[c.Key]
}
