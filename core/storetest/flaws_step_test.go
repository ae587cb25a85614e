package storetest_test

import (
	"context"
	"errors"

	"github.com/lockkit/lockkit/core/store"
)

// stepFlaws lists flaws in the tokens that belong to a grant after the token in the
// Grant.
var stepFlaws = []flaw{
	{"steps by one", []string{
		"token step/grant after a release",
		"token step/grant ahead of the clock",
		"token step/grant after the key was forgotten",
		"token step/grant after an expiry",
		"token step/waiter granted after an expiry",
		"token step/waiter granted after a release",
		"token step/fair waiter granted after a release",
		"token step/waiter with Push",
		"token step/grant after refused claims",
		"token step/grant after readers",
		"token step/grant after an extension",
		"token step/grant after a kept key",
		"token step/grant after a run",
		"token step/grant after an undone run",
		"token step/grant owns tokens after MinToken",
	}, func(s *tampered) {
		s.acquire = s.acquireStepping(func(*tampered, string) uint64 { return 1 })
	}},
	{"steps by one less", []string{
		"token step/grant after a release",
		"token step/grant after an expiry",
		"token step/waiter granted after a release",
	}, func(s *tampered) {
		s.acquire = s.acquireStepping(func(*tampered, string) uint64 { return store.TokenStep - 1 })
	}},
	{"forgets the step at the release", []string{
		"token step/grant after a release",
		"token step/grant ahead of the clock",
		"token step/grant after the key was forgotten",
		"token step/waiter granted after a release",
		"token step/grant after a run",
	}, func(s *tampered) {
		s.release = s.releaseMarked
		s.acquire = s.acquireStepping(func(s *tampered, key string) uint64 {
			if s.marked(key) {
				return 1
			}
			return store.TokenStep
		})
	}},
	{"forgets the step at the expiry", []string{
		"token step/grant after an expiry",
		"token step/waiter granted after an expiry",
	}, func(s *tampered) {
		s.release = s.releaseMarked
		s.acquire = s.acquireStepping(func(s *tampered, key string) uint64 {
			if s.marked(key) {
				return store.TokenStep
			}
			return 1
		})
	}},
	{"forgets the step beside a waiter", []string{
		"token step/waiter granted after a release",
		"token step/fair waiter granted after a release",
		"token step/waiter granted after an expiry",
		"token step/grant after refused claims",
	}, func(s *tampered) {
		steps := s.acquireStepping(func(s *tampered, key string) uint64 {
			if s.marked(key) {
				return 1
			}
			return store.TokenStep
		})
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := steps(ctx, c)
			if errors.Is(err, store.ErrBusy) && c.Wait {
				s.mark(c.Key)
			}
			return g, err
		}
	}},
	{"forgets the step when it extends", []string{
		"token step/grant after an extension",
	}, func(s *tampered) {
		s.extend = extendEach(func(ctx context.Context, c store.Claim) error {
			s.mark(c.Key)
			return s.extendSound(ctx, c)
		})
		s.acquire = s.acquireStepping(func(s *tampered, key string) uint64 {
			if s.marked(key) {
				return 1
			}
			return store.TokenStep
		})
	}},
	{"gives nested holds the last token", []string{
		"token step/nested holds use no token",
		"token step/joining claim uses no token",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if g.Token == 0 {
				return g, err
			}
			first, known := s.noted(g.Owner)
			if !known {
				s.note(g.Owner, c)
			} else if first.Lease != c.Lease {
				g.Token += store.TokenStep - 1
			}
			return g, err
		}
	}},
	{"gives repeated claims the last token", []string{
		"token step/repeated claim uses no token",
		"token step/grant after an extension",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if g.Token > 0 && s.count(c.Lease, 1) > 1 {
				g.Token += store.TokenStep - 1
			}
			return g, err
		}
	}},
	{"uses a token for each hold", []string{
		"token step/nested holds use no token",
		"token step/joining claim uses no token",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if g.Token > 0 {
				g.Token += uint64(s.count(g.Owner, 1) - s.count(c.Lease, 1))
			}
			return g, err
		}
	}},
	{"gives a token of another grant", []string{
		"token step/grant owns tokens after MinToken",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if err == nil && c.MinToken > 0 {
				g.Token = c.MinToken
			}
			return g, err
		}
	}},
	{"forgets the step after MinToken", []string{
		"token step/grant owns tokens after a raise",
		"token step/grant owns tokens after MinToken",
		"token step/grant after an expiry",
	}, func(s *tampered) {
		steps := s.acquireStepping(func(s *tampered, key string) uint64 {
			if s.marked(key) {
				return 1
			}
			return store.TokenStep
		})
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := steps(ctx, c)
			if err == nil && c.MinToken > 0 {
				s.mark(c.Key)
			}
			return g, err
		}
	}},
	{"begins tokens above 53 bits", []string{
		"token step/tokens fit in 53 bits",
	}, func(s *tampered) {
		s.acquire = s.acquireToken(func(_ *tampered, _ store.Claim, token uint64) uint64 { return token + 1<<53 })
	}},
	{"accepts any MinToken", []string{
		"token step/MinToken too large",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			c.MinToken = min(c.MinToken, 1<<51)
			return s.Store.Acquire(ctx, c)
		}
	}},
}

// acquireStepping returns an Acquire that counts the tokens of each key itself. The
// token of a new grant is greater than the last token by at least the result of step.
func (s *tampered) acquireStepping(step func(s *tampered, key string) uint64) func(context.Context, store.Claim) (store.Grant, error) {
	return s.acquireToken(func(s *tampered, c store.Claim, token uint64) uint64 {
		defer s.lock()()
		if sound := "sound " + c.Key; s.tokens[sound] != token {
			s.tokens[sound] = token
			s.tokens[c.Key] = max(s.tokens[c.Key]+step(s, c.Key), c.MinToken)
			s.counts["marked "+c.Key] = 0
		}
		return s.tokens[c.Key]
	})
}

// mark marks the last grant of key. marked reports whether that grant is marked. The next
// grant clears the mark.
func (s *tampered) mark(key string) { s.count("marked "+key, 1) }

func (s *tampered) marked(key string) bool { return s.counts["marked "+key] > 0 }

func (s *tampered) releaseMarked(ctx context.Context, c store.Claim) error {
	if s.extendSound(ctx, c) == nil {
		s.mark(c.Key)
	}
	return s.Store.Release(ctx, c)
}
