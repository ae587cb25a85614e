package storetest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// extendFlaws lists flaws in the time of holds, and in repeated calls.
var extendFlaws = []flaw{
	{"extends without compare", []string{
		"extend/stranger cannot extend",
		"expiry/expired hold beside its successor",
	}, func(s *tampered) {
		s.acquire = s.acquireNoted
		s.extend = extendEach(func(ctx context.Context, c store.Claim) error {
			if holder, ok := s.noted(c.Key); ok {
				c.Lease = holder.Lease
			}
			return s.extendSound(ctx, c)
		})
	}},
	{"creates holds by extending", []string{
		"extend/extension never creates a hold",
		"extend/extension of a released hold",
		"extend/extension of a waiting claim",
		"expiry/expired hold cannot be extended",
		"acquire/extend and release from another process",
	}, func(s *tampered) {
		s.extend = extendEach(func(ctx context.Context, c store.Claim) error {
			err := s.extendSound(ctx, c)
			if errors.Is(err, store.ErrLost) {
				_, err = s.Store.Acquire(ctx, c)
			}
			return err
		})
	}},
	{"shortens holds by extending", []string{
		"extend/extension never shortens",
	}, func(s *tampered) {
		s.extend = extendEach(func(ctx context.Context, c store.Claim) error {
			err := s.extendSound(ctx, c)
			if err == nil {
				_ = s.Store.Release(ctx, c)
				_, err = s.Store.Acquire(ctx, c)
			}
			return err
		})
	}},
	{"reports an extension without one", []string{
		"extend/hold lasts from its last extension",
		"extend/hold lasts while it is extended",
		"extend/batch extends each hold",
		"expiry/extended hold expires after its TTL",
		"acquire/repeated claim never shortens a hold",
	}, func(s *tampered) {
		s.extend = extendEach(func(ctx context.Context, c store.Claim) error {
			c.TTL = 1
			return s.extendSound(ctx, c)
		})
	}},
	{"answers a batch in another order", []string{
		"extend/batch answers in order",
		"extend/batch of six hundred claims",
	}, func(s *tampered) {
		s.extend = func(ctx context.Context, claims []store.Claim) []store.Extension {
			answers := s.Store.Extend(ctx, claims)
			slices.SortStableFunc(answers, func(a, b store.Extension) int {
				return strings.Compare(errorText(a.Err), errorText(b.Err))
			})
			return answers
		}
	}},
	{"stops a batch at a loss", []string{
		"extend/batch answers in order",
		"extend/batch of six hundred claims",
		"extend/batch with holds of one key",
	}, func(s *tampered) {
		s.extend = func(ctx context.Context, claims []store.Claim) []store.Extension {
			var err error
			return extendEach(func(ctx context.Context, c store.Claim) error {
				if err == nil {
					err = s.extendSound(ctx, c)
				}
				return err
			})(ctx, claims)
		}
	}},
	{"cuts a large batch short", []string{
		"extend/batch of six hundred claims",
	}, func(s *tampered) {
		s.extend = func(ctx context.Context, claims []store.Claim) []store.Extension {
			return s.Store.Extend(ctx, claims[:min(len(claims), 512)])
		}
	}},
	{"expires holds early", []string{
		"expiry/hold expires after its TTL",
		"acquire/repeated claim renews its TTL",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			c.TTL /= 2
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"never expires a hold", []string{
		"expiry/expired hold cannot be released",
		"expiry/expired permits make room",
		"re-entry/re-entry after an expiry",
		"joining/joined hold expires",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if !c.Wait {
				c.TTL += time.Hour
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"shares one expiry per key", []string{
		"expiry/extension beside a crashed reader",
		"re-entry/inner hold expires",
		"re-entry/outer hold expires",
		"joining/joined hold expires",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if err == nil {
				s.queue(c)
				s.extendKey(ctx, c)
			}
			return g, err
		}
		s.extend = extendEach(func(ctx context.Context, c store.Claim) error {
			s.extendKey(ctx, c)
			return s.extendSound(ctx, c)
		})
	}},
	{"shortens all holds of a key", []string{
		"expiry/one reader of two expires",
		"re-entry/inner hold expires",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if first, ok := s.noted(c.Key); ok && err == nil && first.Lease != c.Lease && c.TTL < first.TTL {
				first.TTL = c.TTL
				_ = s.Store.Release(ctx, first)
				_, _ = s.Store.Acquire(ctx, first)
			} else if err == nil && !ok {
				s.note(c.Key, c)
			}
			return g, err
		}
	}},
	{"does not extend on repetition", []string{
		"acquire/repeated claim renews its TTL",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if _, again := s.noted(c.Lease); again {
				c.TTL = time.Millisecond
			}
			g, err := s.Store.Acquire(ctx, c)
			if err == nil {
				s.note(c.Lease, c)
			}
			return g, err
		}
	}},
	{"counts a repetition", []string{
		"acquire/one release of a repeated claim",
		"acquire/repeated reader counts once",
		"re-entry/as many releases as holds",
		"concurrency/same claim sent concurrently",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if err == nil {
				s.count(c.Key+c.Lease, 1)
			}
			return g, err
		}
		s.release = func(ctx context.Context, c store.Claim) error {
			if s.count(c.Key+c.Lease, -1) > 0 {
				return nil
			}
			return s.Store.Release(ctx, c)
		}
	}},
	{"takes permits again on repetition", []string{
		"acquire/repeated claim takes permits once",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if s.count(c.Lease, 1) == 2 && err == nil && c.Limit < store.All {
				c.Lease += "+"
				_, _ = s.Store.Acquire(ctx, c)
			}
			return g, err
		}
	}},
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// extendKey extends all queued holds of c's key, for the longest TTL of these holds and
// c.
func (s *tampered) extendKey(ctx context.Context, c store.Claim) {
	longest := c.TTL
	for _, q := range s.queued() {
		if q.Key == c.Key {
			longest = max(longest, q.TTL)
		}
	}
	for _, q := range s.queued() {
		if q.Key == c.Key {
			q.TTL = longest
			_ = s.extendSound(ctx, q)
		}
	}
}
