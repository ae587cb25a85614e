package storetest_test

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// revoking makes Revoke call fn with the claim of the hold, if that claim is known.
func (s *tampered) revoking(fn func(ctx context.Context, c store.Claim, keep time.Duration) error) {
	s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
		s.note(c.Key+store.HoldID(c.Lease), c)
		return s.Store.Acquire(ctx, c)
	}
	s.revoke = func(ctx context.Context, key, hold string, keep time.Duration) error {
		c, ok := s.noted(key + hold)
		if !ok {
			return s.Store.Revoke(ctx, key, hold, keep)
		}
		return fn(ctx, c, keep)
	}
}

var revokeFlaws = []flaw{
	{"revokes nothing", []string{
		"revoke/revoked hold is lost",
		"revoke/release of a revoked hold",
		"revoke/revoke of a nested hold",
		"revoke/revoke wakes a waiter",
		"revoke/tokens grow over a revoked hold",
		"revoke/one of several concurrent revokes",
	}, func(s *tampered) {
		s.revoke = func(context.Context, string, string, time.Duration) error { return nil }
	}},
	{"frees revoked keys at once", []string{
		"revoke/release of a revoked hold",
		"revoke/revoked key stays taken",
		"revoke/revoked key stays taken for longer",
		"revoke/revoked permit stays taken",
		"revoke/re-entry after a revoke",
		"revoke/hold is revoked once",
	}, func(s *tampered) {
		s.revoke = func(ctx context.Context, key, hold string, _ time.Duration) error {
			return s.Store.Revoke(ctx, key, hold, 0)
		}
	}},
	{"ignores the time that is left", []string{
		"revoke/revoked key stays taken",
		"revoke/revoked permit stays taken",
	}, func(s *tampered) {
		s.revoking(func(ctx context.Context, c store.Claim, keep time.Duration) error {
			c.Keep, c.TTL = keep, 0
			return s.Store.Release(ctx, c)
		})
	}},
	{"ignores the time to keep", []string{
		"revoke/revoked key stays taken for longer",
	}, func(s *tampered) {
		s.revoke = func(ctx context.Context, key, hold string, keep time.Duration) error {
			return s.Store.Revoke(ctx, key, hold, min(keep, time.Millisecond))
		}
	}},
	{"revokes any hold", []string{
		"revoke/revoke of a released hold",
		"revoke/revoke of a nested hold",
		"revoke/revoke of a waiter",
	}, func(s *tampered) {
		s.revoke = func(ctx context.Context, key, hold string, keep time.Duration) error {
			state, err := s.Store.Look(ctx, key)
			if err == nil {
				for _, h := range state.Holds {
					if h.ID != "" {
						_ = s.Store.Revoke(ctx, key, h.ID, keep)
					}
				}
			}
			return s.Store.Revoke(ctx, key, hold, keep)
		}
	}},
	{"revokes all readers", []string{
		"revoke/revoke of one reader",
	}, func(s *tampered) {
		s.revoke = func(ctx context.Context, key, hold string, keep time.Duration) error {
			state, _ := s.Store.Look(ctx, key)
			for _, h := range state.Holds {
				_ = s.Store.Revoke(ctx, key, h.ID, keep)
			}
			return nil
		}
	}},
	{"keeps keys of lost holds", []string{
		"revoke/revoke of an expired hold",
		"revoke/revoke of a released hold",
	}, func(s *tampered) {
		s.revoking(func(ctx context.Context, c store.Claim, keep time.Duration) error {
			err := s.Store.Revoke(ctx, c.Key, store.HoldID(c.Lease), keep)
			if errors.Is(err, store.ErrLost) && keep > 0 {
				c.TTL, c.Lease, c.Owner = keep, "kept", "kept"
				_, _ = s.Store.Acquire(ctx, c)
			}
			return err
		})
	}},
	{"revokes waiters", []string{
		"revoke/revoke of a waiter",
	}, func(s *tampered) {
		s.revoking(func(ctx context.Context, c store.Claim, keep time.Duration) error {
			err := s.Store.Revoke(ctx, c.Key, store.HoldID(c.Lease), keep)
			if errors.Is(err, store.ErrLost) {
				c.Keep, c.TTL, c.Record = keep, 0, nil
				_ = s.Store.Release(ctx, c)
			}
			return err
		})
	}},
	{"revokes twice", []string{
		"revoke/hold is revoked once",
		"revoke/one of several concurrent revokes",
	}, func(s *tampered) {
		s.revoking(func(ctx context.Context, c store.Claim, keep time.Duration) error {
			if err := s.Store.Revoke(ctx, c.Key, store.HoldID(c.Lease), keep); !errors.Is(err, store.ErrLost) {
				return err
			}
			return nil
		})
	}},
	{"undoes the run that it revokes", []string{
		"revoke/revoked run is counted",
	}, func(s *tampered) {
		s.revoking(func(ctx context.Context, c store.Claim, keep time.Duration) error {
			c.Keep, c.TTL, c.Record, c.Undo = keep, 0, nil, true
			return s.Store.Release(ctx, c)
		})
	}},
	{"drops answers of revoked keys", []string{
		"revoke/stored answer outlives a revoke",
	}, func(s *tampered) {
		s.revoking(func(ctx context.Context, c store.Claim, keep time.Duration) error {
			c.Keep, c.Record = keep, &store.Record{}
			return s.Store.Release(ctx, c)
		})
	}},
}

var cardFlaws = []flaw{
	{"stores no cards", []string{
		"cards/card shown in every process",
		"cards/card replaces the last one",
		"cards/cards in order of process",
		"cards/card with a longer TTL",
	}, func(s *tampered) {
		s.put = func(context.Context, store.Card, time.Duration) error { return nil }
	}},
	{"stores one card", []string{
		"cards/card replaces the last one",
		"cards/cards in order of process",
	}, func(s *tampered) {
		s.cards = func(ctx context.Context) ([]store.Card, error) {
			cards, err := s.Store.Cards(ctx)
			return cards[:min(1, len(cards))], err
		}
	}},
	{"stores cards for ever", []string{
		"cards/card expires",
	}, func(s *tampered) {
		s.put = func(ctx context.Context, c store.Card, _ time.Duration) error {
			return s.Store.Put(ctx, c, time.Hour)
		}
	}},
	{"stores cards for a moment", []string{
		"cards/card with a longer TTL",
	}, func(s *tampered) {
		s.put = func(ctx context.Context, c store.Card, ttl time.Duration) error {
			return s.Store.Put(ctx, c, min(ttl, 100*time.Millisecond))
		}
	}},
	{"cuts cards", []string{
		"cards/long card is stored whole",
	}, func(s *tampered) {
		s.put = func(ctx context.Context, c store.Card, ttl time.Duration) error {
			c.Entries = c.Entries[:min(100, len(c.Entries))]
			return s.Store.Put(ctx, c, ttl)
		}
	}},
	{"stores cards as locks", []string{
		"cards/cards are no locks",
	}, func(s *tampered) {
		s.put = func(ctx context.Context, c store.Card, ttl time.Duration) error {
			_, _ = s.Store.Acquire(ctx, store.Claim{
				Key: "card:" + c.Process, Owner: c.Process, Lease: c.Process, Weight: store.All, Limit: store.All, TTL: ttl,
			})
			return s.Store.Put(ctx, c, ttl)
		}
	}},
	{"stores any card", []string{
		"cards/invalid card is refused",
	}, func(s *tampered) {
		s.put = func(ctx context.Context, c store.Card, ttl time.Duration) error {
			_ = s.Store.Put(ctx, c, ttl)
			return nil
		}
	}},
}
