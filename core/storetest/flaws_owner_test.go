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
		"re-entry/an owner enters again beside its own hold",
		"re-entry/a reader enters its owner's exclusive hold",
		"admission/an owner's own weight does not keep it out",
		"fair/an owner enters again past the waiters",
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
		"admission/owners that differ in one invalid byte exclude each other",
		"admission/leases that differ in one invalid byte are two",
	}, func(s *tampered) {
		text := func(c store.Claim) store.Claim {
			c.Owner, c.Lease = strings.ToValidUTF8(c.Owner, "\ufffd"), strings.ToValidUTF8(c.Lease, "\ufffd")
			return c
		}
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) { return s.Store.Acquire(ctx, text(c)) }
		s.release = func(ctx context.Context, c store.Claim) error { return s.Store.Release(ctx, text(c)) }
		s.extend = extendEach(func(ctx context.Context, c store.Claim) error { return s.extendSound(ctx, text(c)) })
	}},
	{"ends all holds of an owner with one release", []string{
		"re-entry/the key is free after exactly as many releases",
		"re-entry/the outer hold can go first",
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
	{"lets an owner in again after its hold has expired", []string{
		"re-entry/an owner that lost its hold does not enter again",
		"keep/its last owner cannot enter what is kept",
		"expiry/an expired claim that comes again does not get past its successor",
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
		"re-entry/a claim heavier than its owner's hold is invalid",
		"re-entry/what is too heavy is decided by live holds",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrInvalid) && c.Via == "" {
				return store.Grant{Owner: c.Owner}, nil
			}
			return g, err
		}
	}},
	{"calls an upgrade busy and remembers it", []string{
		"re-entry/a claim heavier than its owner's hold is invalid",
		"joining/a claim heavier than the hold it joins is invalid",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrInvalid) {
				return store.Grant{}, &store.BusyError{RetryAfter: time.Second}
			}
			return g, err
		}
	}},
	{"keeps the hold of an upgrade that it refuses", []string{
		"re-entry/a claim heavier than its owner's hold leaves nothing behind",
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
	{"compares an upgrade with the last hold", []string{
		"re-entry/the heaviest hold decides what is too heavy",
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
		"joining/a reader joins a reader",
		"fair/a claim joins past the waiters",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			c.Via = ""
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"ignores how heavy a claim is that joins", []string{
		"joining/a claim heavier than the hold it joins is invalid",
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
	{"joins an owner that does not hold", []string{
		"joining/Via is ignored on a free key",
		"joining/Via is ignored after that owner's release",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if c.Via != "" {
				c.Owner = c.Via
			}
			return s.Store.Acquire(ctx, c)
		}
	}},
	{"admits every claim that names a Via", []string{
		"joining/Via is ignored where another owner holds",
		"joining/Via is ignored after that owner's hold has expired",
		"keep/no claim can join a kept key",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if errors.Is(err, store.ErrBusy) && c.Via != "" {
				return store.Grant{Owner: c.Via}, nil
			}
			return g, err
		}
	}},
	{"does not say which owner a claim has joined", []string{
		"joining/Via joins the owner that holds",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			g.Owner = c.Owner
			return g, err
		}
	}},
	{"forgets which owner a claim has joined", []string{
		"joining/a joined claim again gives the same grant",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if err == nil && s.count(c.Lease, 1) > 1 {
				g.Owner = c.Owner
			}
			return g, err
		}
	}},
	{"extends only under the owner that was granted", []string{
		"joining/a joined hold is extended and released under either owner",
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

// acquireQueued acquires c. If c is granted, acquireQueued queues c.
func (s *tampered) acquireQueued(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if err == nil {
		s.queue(c)
	}
	return g, err
}

// acquireNotedByLease acquires c. If c is granted, it notes c under c's key and lease.
func (s *tampered) acquireNotedByLease(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if err == nil {
		s.note(c.Key+c.Lease, c)
	}
	return g, err
}
