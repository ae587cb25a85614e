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
		"extend/a stranger cannot extend",
		"expiry/an expired hold does not disturb its successor",
	}, func(s *tampered) {
		s.acquire = s.acquireNoted
		s.extend = extendEach(func(ctx context.Context, c store.Claim) error {
			if holder, ok := s.noted(c.Key); ok {
				c.Lease = holder.Lease
			}
			return s.extendSound(ctx, c)
		})
	}},
	{"creates what it is told to extend", []string{
		"extend/an extension never creates a hold",
		"extend/an extension never revives a released hold",
		"extend/an extension never turns a waiting claim into a hold",
		"expiry/an expired hold cannot be extended",
		"acquire/a hold belongs to the key, not to the connection",
	}, func(s *tampered) {
		s.extend = extendEach(func(ctx context.Context, c store.Claim) error {
			err := s.extendSound(ctx, c)
			if errors.Is(err, store.ErrLost) {
				_, err = s.Store.Acquire(ctx, c)
			}
			return err
		})
	}},
	{"shortens what it is told to extend", []string{
		"extend/an extension never shortens",
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
	{"says extended and does nothing", []string{
		"extend/a hold lasts for its TTL from the extension",
		"extend/a hold lives as long as it is extended",
		"extend/a batch extends each of its holds",
		"expiry/an extended hold ends by itself, and not before its time",
		"acquire/a repeated claim does not shorten what an extension gave",
	}, func(s *tampered) {
		s.extend = extendEach(func(ctx context.Context, c store.Claim) error {
			c.TTL = 1
			return s.extendSound(ctx, c)
		})
	}},
	{"answers a batch in another order", []string{
		"extend/a batch has one answer for each claim, in order",
		"extend/a batch of six hundred has one answer for each claim, in order",
	}, func(s *tampered) {
		s.extend = func(ctx context.Context, claims []store.Claim) []store.Extension {
			answers := s.Store.Extend(ctx, claims)
			slices.SortStableFunc(answers, func(a, b store.Extension) int {
				return strings.Compare(errorText(a.Err), errorText(b.Err))
			})
			return answers
		}
	}},
	{"stops a batch at the first loss", []string{
		"extend/a batch has one answer for each claim, in order",
		"extend/a batch of six hundred has one answer for each claim, in order",
		"extend/a batch may have several holds of one key",
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
		"extend/a batch of six hundred has one answer for each claim, in order",
	}, func(s *tampered) {
		s.extend = func(ctx context.Context, claims []store.Claim) []store.Extension {
			return s.Store.Extend(ctx, claims[:min(len(claims), 512)])
		}
	}},
	{"lets a hold end early", []string{
		"expiry/a hold ends by itself, and not before its time",
		"acquire/a repeated claim lasts for its TTL from then",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			c.TTL /= 2
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"never lets a hold end", []string{
		"expiry/an expired hold cannot be released",
		"expiry/expired permits make room",
		"re-entry/an owner that lost its hold does not enter again",
		"joining/a joined hold ends by itself",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if !c.Wait {
				c.TTL += time.Hour
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"shares one end among all holds of a key", []string{
		"expiry/a crashed reader is not kept alive by another's extension",
		"re-entry/an inner hold ends by itself",
		"re-entry/an outer hold ends by itself",
		"joining/a joined hold ends by itself",
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
	{"ends all holds of a key with the shortest", []string{
		"expiry/a reader's end does not end the others",
		"re-entry/an inner hold ends by itself",
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
		"acquire/a repeated claim lasts for its TTL from then",
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
		"acquire/a repeated claim is given up by one release",
		"acquire/a repeated reader counts once",
		"re-entry/the key is free after exactly as many releases",
		"concurrency/a claim that is sent many times at once is one hold",
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
		"acquire/a repeated claim takes its permits once",
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
