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
		"token step/a grant right after a release has tokens of its own",
		"token step/so has one after a release while they are ahead of the clock",
		"token step/so has one after the key was forgotten",
		"token step/so has one after an expiry",
		"token step/so has one after an expiry that a waiter was there to see",
		"token step/so has a waiter",
		"token step/so has a fair waiter",
		"token step/so has a waiter that the store may admit by itself",
		"token step/so has one after others have asked in vain",
		"token step/so has one after readers",
		"token step/so has one after an extension",
		"token step/so has one after what was kept",
		"token step/so has one after a run",
		"token step/so has one after a run that was taken back",
		"token step/the tokens after one that was asked for are the grant's",
	}, func(s *tampered) {
		s.acquire = s.acquireStepping(func(*tampered, string) uint64 { return 1 })
	}},
	{"steps by one less", []string{
		"token step/a grant right after a release has tokens of its own",
		"token step/so has one after an expiry",
		"token step/so has a waiter",
	}, func(s *tampered) {
		s.acquire = s.acquireStepping(func(*tampered, string) uint64 { return store.TokenStep - 1 })
	}},
	{"forgets the step at the release", []string{
		"token step/a grant right after a release has tokens of its own",
		"token step/so has one after a release while they are ahead of the clock",
		"token step/so has one after the key was forgotten",
		"token step/so has a waiter",
		"token step/so has one after a run",
	}, func(s *tampered) {
		s.release = s.releaseMarked
		s.acquire = s.acquireStepping(func(s *tampered, key string) uint64 {
			if s.marked(key) {
				return 1
			}
			return store.TokenStep
		})
	}},
	{"forgets the step when the hold expires", []string{
		"token step/so has one after an expiry",
		"token step/so has one after an expiry that a waiter was there to see",
	}, func(s *tampered) {
		s.release = s.releaseMarked
		s.acquire = s.acquireStepping(func(s *tampered, key string) uint64 {
			if s.marked(key) {
				return store.TokenStep
			}
			return 1
		})
	}},
	{"forgets the step when it writes a waiter beside the hold", []string{
		"token step/so has a waiter",
		"token step/so has a fair waiter",
		"token step/so has one after an expiry that a waiter was there to see",
		"token step/so has one after others have asked in vain",
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
		"token step/so has one after an extension",
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
	{"gives a further hold the last token of the grant", []string{
		"token step/further holds of the owner use up none",
		"token step/a claim that joins uses up none",
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
	{"gives the same claim again the last token of the grant", []string{
		"token step/the same claim again uses up no token",
		"token step/so has one after an extension",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if g.Token > 0 && s.count(c.Lease, 1) > 1 {
				g.Token += store.TokenStep - 1
			}
			return g, err
		}
	}},
	{"uses up a token for each hold of the owner", []string{
		"token step/further holds of the owner use up none",
		"token step/a claim that joins uses up none",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if g.Token > 0 {
				g.Token += uint64(s.count(g.Owner, 1) - s.count(c.Lease, 1))
			}
			return g, err
		}
	}},
	{"gives a token that was asked for although it is another grant's", []string{
		"token step/the tokens after one that was asked for are the grant's",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if err == nil && c.MinToken > 0 {
				g.Token = c.MinToken
			}
			return g, err
		}
	}},
	{"forgets the step after a token that was asked for", []string{
		"token step/so are those after one to which the grant was raised",
		"token step/the tokens after one that was asked for are the grant's",
		"token step/so has one after an expiry",
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
	{"begins its tokens at 2^53", []string{
		"token step/all tokens are below 2^53",
	}, func(s *tampered) {
		s.acquire = s.acquireToken(func(_ *tampered, _ store.Claim, token uint64) uint64 { return token + 1<<53 })
	}},
	{"takes any token that is asked for", []string{
		"token step/a token from which a grant would reach 2^53 cannot be asked for",
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
