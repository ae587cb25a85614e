package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/inspection"
)

// card is a kept card.
type card struct {
	text  []byte
	until time.Time
}

// Put implements core.Cards.
func (s *Store) Put(ctx context.Context, c core.Card, ttl time.Duration) error {
	const op = "memstore: put a card"
	text, err := inspection.EncodeCard(op, c, ttl)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w: %w", op, core.ErrUnavailable, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.cards, func(_ string, c card) bool { return !c.until.After(now) })
	s.cards[c.Process] = card{text, now.Add(ttl)}
	return nil
}

// Cards implements core.Cards.
func (s *Store) Cards(ctx context.Context) ([]core.Card, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("memstore: cards: %w: %w", core.ErrUnavailable, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var cards []core.Card
	for _, process := range slices.Sorted(maps.Keys(s.cards)) {
		if c, ok := inspection.DecodeCard(process, s.cards[process].text); ok && s.cards[process].until.After(now) {
			cards = append(cards, c)
		}
	}
	return cards, nil
}
