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

// revokeFlaws lists flaws of Revoke.
var revokeFlaws = []flaw{
	{"revokes nothing, and says that it has", []string{
		"revoke/a hold that is revoked for now is free, and its holder has lost it",
		"revoke/a revoked hold cannot be released, nor what it has left",
		"revoke/another hold of the same owner is not revoked",
		"revoke/a hold that is revoked for now wakes a waiter",
		"revoke/tokens grow over a hold that was revoked",
		"revoke/of several that revoke a hold at once, one does",
	}, func(s *tampered) {
		s.revoke = func(context.Context, string, string, time.Duration) error { return nil }
	}},
	{"keeps a revoked key for no time", []string{
		"revoke/a revoked hold cannot be released, nor what it has left",
		"revoke/a revoked key stays taken for what is left of the hold",
		"revoke/a revoked key stays taken for longer if it is to",
		"revoke/a revoked permit stays taken",
		"revoke/a revoked owner cannot enter what it has left",
		"revoke/a hold is revoked once",
	}, func(s *tampered) {
		s.revoke = func(ctx context.Context, key, hold string, _ time.Duration) error {
			return s.Store.Revoke(ctx, key, hold, 0)
		}
	}},
	{"keeps a revoked key for no longer than it was told", []string{
		"revoke/a revoked key stays taken for what is left of the hold",
		"revoke/a revoked permit stays taken",
	}, func(s *tampered) {
		s.revoking(func(ctx context.Context, c store.Claim, keep time.Duration) error {
			c.Keep, c.TTL = keep, 0
			return s.Store.Release(ctx, c)
		})
	}},
	{"keeps a revoked key for no longer than the hold", []string{
		"revoke/a revoked key stays taken for longer if it is to",
	}, func(s *tampered) {
		s.revoke = func(ctx context.Context, key, hold string, keep time.Duration) error {
			return s.Store.Revoke(ctx, key, hold, min(keep, time.Millisecond))
		}
	}},
	{"revokes whatever hold there is", []string{
		"revoke/a hold that is gone is not revoked, and nothing changes",
		"revoke/another hold of the same owner is not revoked",
		"revoke/a waiter is not revoked, and keeps its place",
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
		"revoke/other holds of the key are not revoked",
	}, func(s *tampered) {
		s.revoke = func(ctx context.Context, key, hold string, keep time.Duration) error {
			state, _ := s.Store.Look(ctx, key)
			for _, h := range state.Holds {
				_ = s.Store.Revoke(ctx, key, h.ID, keep)
			}
			return nil
		}
	}},
	{"takes a key whose hold has expired", []string{
		"revoke/a hold that has expired is not revoked",
		"revoke/a hold that is gone is not revoked, and nothing changes",
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
	{"revokes what waits", []string{
		"revoke/a waiter is not revoked, and keeps its place",
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
		"revoke/a hold is revoked once",
		"revoke/of several that revoke a hold at once, one does",
	}, func(s *tampered) {
		s.revoking(func(ctx context.Context, c store.Claim, keep time.Duration) error {
			if err := s.Store.Revoke(ctx, c.Key, store.HoldID(c.Lease), keep); !errors.Is(err, store.ErrLost) {
				return err
			}
			return nil
		})
	}},
	{"takes back the run that it revokes", []string{
		"revoke/a run that was revoked stays counted, and its answer comes too late",
	}, func(s *tampered) {
		s.revoking(func(ctx context.Context, c store.Claim, keep time.Duration) error {
			c.Keep, c.TTL, c.Record, c.Undo = keep, 0, nil, true
			return s.Store.Release(ctx, c)
		})
	}},
	{"drops the answer of a key that it revokes", []string{
		"revoke/an answer that is kept outlives a revoke",
	}, func(s *tampered) {
		s.revoking(func(ctx context.Context, c store.Claim, keep time.Duration) error {
			c.Keep, c.Record = keep, &store.Record{}
			return s.Store.Release(ctx, c)
		})
	}},
}

// cardFlaws lists flaws of Put and Cards.
var cardFlaws = []flaw{
	{"keeps no cards", []string{
		"cards/a card is shown in every process as it was put",
		"cards/a card replaces the last one of its process, and no other",
		"cards/cards are in the order of their processes",
		"cards/a card lasts as long as it is to",
	}, func(s *tampered) {
		s.put = func(context.Context, store.Card, time.Duration) error { return nil }
	}},
	{"keeps one card", []string{
		"cards/a card replaces the last one of its process, and no other",
		"cards/cards are in the order of their processes",
	}, func(s *tampered) {
		s.cards = func(ctx context.Context) ([]store.Card, error) {
			cards, err := s.Store.Cards(ctx)
			return cards[:min(1, len(cards))], err
		}
	}},
	{"keeps cards for ever", []string{
		"cards/a card ends",
	}, func(s *tampered) {
		s.put = func(ctx context.Context, c store.Card, _ time.Duration) error {
			return s.Store.Put(ctx, c, time.Hour)
		}
	}},
	{"keeps cards for a moment", []string{
		"cards/a card lasts as long as it is to",
	}, func(s *tampered) {
		s.put = func(ctx context.Context, c store.Card, ttl time.Duration) error {
			return s.Store.Put(ctx, c, min(ttl, 100*time.Millisecond))
		}
	}},
	{"cuts cards", []string{
		"cards/a long card is kept whole",
	}, func(s *tampered) {
		s.put = func(ctx context.Context, c store.Card, ttl time.Duration) error {
			c.Entries = c.Entries[:min(100, len(c.Entries))]
			return s.Store.Put(ctx, c, ttl)
		}
	}},
	{"keeps cards as locks", []string{
		"cards/cards are no locks",
	}, func(s *tampered) {
		s.put = func(ctx context.Context, c store.Card, ttl time.Duration) error {
			_, _ = s.Store.Acquire(ctx, store.Claim{
				Key: "card:" + c.Process, Owner: c.Process, Lease: c.Process, Weight: store.All, Limit: store.All, TTL: ttl,
			})
			return s.Store.Put(ctx, c, ttl)
		}
	}},
	{"keeps any card", []string{
		"cards/a card that no store keeps is refused",
	}, func(s *tampered) {
		s.put = func(ctx context.Context, c store.Card, ttl time.Duration) error {
			_ = s.Store.Put(ctx, c, ttl)
			return nil
		}
	}},
}
