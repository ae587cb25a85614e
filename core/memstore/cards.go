package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core/internal/inspection"
	"github.com/lockkit/lockkit/core/store"
)

type card struct {
	text  []byte
	until time.Time
}

// Put implements store.Cards.
func (s *Store) Put(ctx context.Context, c store.Card, ttl time.Duration) error {
	const op = "memstore: put a card"
	text, err := inspection.EncodeCard(op, c, ttl)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w: %w", op, store.ErrUnavailable, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.cards, func(_ string, c card) bool { return !c.until.After(now) })
	s.cards[c.Process] = card{text, now.Add(ttl)}
	return nil
}

// Cards implements store.Cards.
func (s *Store) Cards(ctx context.Context) ([]store.Card, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("memstore: cards: %w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var cards []store.Card
	for _, process := range slices.Sorted(maps.Keys(s.cards)) {
		if c, ok := inspection.DecodeCard(process, s.cards[process].text); ok && s.cards[process].until.After(now) {
			cards = append(cards, c)
		}
	}
	return cards, nil
}
