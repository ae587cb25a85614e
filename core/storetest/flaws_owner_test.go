package storetest_test

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// ownerFlaws lists flaws of re-entry and joining.
var ownerFlaws = []flaw{
	{"knows no re-entry", []string{
		"re-entry/owner enters again",
		"re-entry/reader inside own exclusive hold",
		"admission/own weight excludes no owner",
		"fair/owner enters past the waiters",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			own := c.Owner
			if c.Via == "" {
				c.Owner += c.Lease
			}
			g, err := s.Store.Acquire(ctx, c)
			if err == nil && c.Via == "" {
				g.Owner = own
			}
			return g, err
		}
	}},
	{"takes owners and leases for text", []string{
		"admission/owners differ in one invalid byte",
		"admission/leases differ in one invalid byte",
	}, func(s *tampered) {
		text := func(c store.Claim) store.Claim {
			c.Owner, c.Lease = strings.ToValidUTF8(c.Owner, "\ufffd"), strings.ToValidUTF8(c.Lease, "\ufffd")
			return c
		}
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) { return s.Store.Acquire(ctx, text(c)) }
		s.release = func(ctx context.Context, c store.Claim) error { return s.Store.Release(ctx, text(c)) }
		s.extend = extendEach(func(ctx context.Context, c store.Claim) error { return s.extendSound(ctx, text(c)) })
	}},
	{"releases all holds of an owner", []string{
		"re-entry/as many releases as holds",
		"re-entry/outer hold released first",
	}, func(s *tampered) {
		s.acquire = s.acquireQueued
		s.release = func(ctx context.Context, c store.Claim) error {
			err := s.Store.Release(ctx, c)
			for _, q := range s.queued() {
				if err == nil && q.Key == c.Key && q.Owner == c.Owner && c.Keep == 0 {
					_ = s.Store.Release(ctx, q)
				}
			}
			return err
		}
	}},
	{"admits owners after an expiry", []string{
		"re-entry/re-entry after an expiry",
		"keep/re-entry into a kept key",
		"expiry/expired claim repeated beside its successor",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if _, held := s.noted(c.Key + c.Owner); held && errors.Is(err, store.ErrBusy) {
				return store.Grant{Owner: c.Owner}, nil
			}
			if err == nil {
				s.note(c.Key+c.Owner, c)
			}
			return g, err
		}
	}},
	{"upgrades a reader", []string{
		"re-entry/claim heavier than own hold",
		"re-entry/heaviest hold was released",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrInvalid) && c.Via == "" {
				return store.Grant{Owner: c.Owner}, nil
			}
			return g, err
		}
	}},
	{"answers busy to an upgrade", []string{
		"re-entry/claim heavier than own hold",
		"joining/claim heavier than the joined hold",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrInvalid) {
				return store.Grant{}, &store.BusyError{RetryAfter: time.Second}
			}
			return g, err
		}
	}},
	{"holds a refused upgrade", []string{
		"re-entry/refused heavier claim leaves nothing",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrInvalid) {
				c.Weight = 1
				_, _ = s.Store.Acquire(ctx, c)
			}
			return g, err
		}
	}},
	{"compares upgrades with the last hold", []string{
		"re-entry/heaviest hold limits further claims",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			last, ok := s.noted(c.Key + c.Owner)
			if ok && last.Lease != c.Lease && c.Weight > last.Weight {
				return store.Grant{}, store.ErrInvalid
			}
			g, err := s.Store.Acquire(ctx, c)
			if err == nil {
				s.note(c.Key+c.Owner, c)
			}
			return g, err
		}
	}},
	{"ignores Via", []string{
		"joining/Via joins the owner that holds",
		"joining/reader joins a reader",
		"fair/claim joins past the waiters",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			c.Via = ""
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"ignores the weight of joins", []string{
		"joining/claim heavier than the joined hold",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrInvalid) && c.Via != "" {
				c.Weight = 1
				return s.Store.Acquire(ctx, c)
			}
			return g, err
		}
	}},
	{"joins an owner without a hold", []string{
		"joining/Via on a free key",
		"joining/Via after the release",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if c.Via != "" {
				c.Owner = c.Via
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"admits every claim with Via", []string{
		"joining/Via while another owner holds",
		"joining/Via after the expiry",
		"keep/join of a kept key",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrBusy) && c.Via != "" {
				return store.Grant{Owner: c.Via}, nil
			}
			return g, err
		}
	}},
	{"hides the joined owner", []string{
		"joining/Via joins the owner that holds",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			g.Owner = c.Owner
			return g, err
		}
	}},
	{"forgets the joined owner", []string{
		"joining/repeated join gets the same grant",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if err == nil && s.count(c.Lease, 1) > 1 {
				g.Owner = c.Owner
			}
			return g, err
		}
	}},
	{"extends only under the granted owner", []string{
		"joining/joined hold under either owner",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if err == nil {
				s.note(c.Lease, store.Claim{Owner: g.Owner})
			}
			return g, err
		}
		s.extend = extendEach(func(ctx context.Context, c store.Claim) error {
			if granted, ok := s.noted(c.Lease); ok && granted.Owner != c.Owner {
				return store.ErrLost
			}
			return s.extendSound(ctx, c)
		})
	}},
}

func (s *tampered) acquireQueued(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if err == nil {
		s.queue(c)
	}
	return g, err
}

func (s *tampered) acquireNotedByLease(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if err == nil {
		s.note(c.Key+c.Lease, c)
	}
	return g, err
}
