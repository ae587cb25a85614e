package redisstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core/internal/inspection"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/store"
)

// sweepEvery is the number of Puts from one deletion of expired cards to the next. The
// first Put of a Store also deletes expired cards.
const sweepEvery = 100

// Put implements store.Cards. All cards are in one hash, "lk2:{}cards" without
// WithPrefix, so that Cards does not need to walk over all keys. With WithPlainKeys or
// WithRedisson, Put fails with store.ErrUnsupported, because other programs may own the
// servers.
func (s *Store) Put(ctx context.Context, c store.Card, ttl time.Duration) error {
	const op = "put a card"
	if err := s.keepsCards(op); err != nil {
		return err
	}
	text, err := inspection.EncodeCard("redisstore: "+op, c, ttl)
	if err != nil {
		return err
	}
	cmd := s.onCards("put").Text(c.Process).Num(millis(ttl)).Text(string(text))
	if s.puts.Add(1)%sweepEvery == 1 {
		cmd.Text("1")
	}
	return s.withRight(ctx, s.confirm(ctx, op, cmd))
}

// Cards implements store.Cards. It leaves out cards that cannot be read. With
// WithPlainKeys or WithRedisson it fails with store.ErrUnsupported.
func (s *Store) Cards(ctx context.Context) ([]store.Card, error) {
	const op = "cards"
	if err := s.keepsCards(op); err != nil {
		return nil, err
	}
	a, _, err := s.call(ctx, op, s.onCards("cards"))
	if err != nil {
		return nil, s.withRight(ctx, err)
	}
	var cards []store.Card
	for i := 1; i+1 < len(a.list); i += 2 {
		process, _ := a.list[i].(string)
		text, _ := a.list[i+1].(string)
		if c, ok := inspection.DecodeCard(process, []byte(text)); ok {
			cards = append(cards, c)
		}
	}
	slices.SortFunc(cards, func(a, b store.Card) int { return cmp.Compare(a.Process, b.Process) })
	return cards, nil
}

func (s *Store) keepsCards(op string) error {
	if s.foreign() {
		return s.unsupported(op, "cards")
	}
	return nil
}

// onCards returns a call of the script for cards. No lock has the name of the cards'
// hash, because the name of a lock ends with a brace.
func (s *Store) onCards(what string) *pipeline.Call {
	return s.pipeline.Eval(cardScript, []byte(s.prefix+"{}cards"), "", what)
}
