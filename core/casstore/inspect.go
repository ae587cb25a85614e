package casstore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/internal/inspection"
	"github.com/lockkit/lockkit/core/internal/keystate"
	"github.com/lockkit/lockkit/core/store"
)

// Look implements store.Inspector, in a place that is a Lister.
func (s *Store) Look(ctx context.Context, key string) (store.State, error) {
	const op = "look"
	if s.lister == nil {
		return store.State{}, s.unsupported(op)
	}
	if err := claims.CheckKey(s.name+": "+op, key, false); err != nil {
		return store.State{}, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	e, err := do(ctx, s, func(ctx context.Context) (Entry, error) { return s.place.Load(ctx, key, Want{}) })
	if err != nil {
		return store.State{}, s.unchanged(op, err)
	}
	view, err := look(key, e)
	if err != nil {
		return store.State{}, fmt.Errorf("%s: %s: %w: %w", s.name, op, store.ErrUnavailable, err)
	}
	return view, nil
}

func look(key string, e Entry) (store.State, error) {
	e.Now = nowOf(e)
	state, err := decode(e)
	if err != nil {
		return store.State{}, err
	}
	return state.Look(e.Now, key), nil
}

// List implements store.Inspector, in a place that is a Lister. next is the last key
// that List has read, in hex, or "" if List has read fewer than most keys. List leaves
// out keys without live holds, waiters and records, and entries that cannot be read.
// For an entry that cannot be read, Look returns the reason.
func (s *Store) List(ctx context.Context, after string, most int) (page []store.State, next string, err error) {
	const op = "list"
	if s.lister == nil {
		return nil, "", s.unsupported(op)
	}
	if err := inspection.CheckPage(s.name+": "+op, most); err != nil {
		return nil, "", err
	}
	last, err := hex.DecodeString(after)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %s: there is no such page: %w", s.name, op, store.ErrInvalid)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	items, err := s.list(ctx, string(last), most)
	if err != nil {
		return nil, "", s.unchanged(op, err)
	}
	for _, item := range items {
		if claims.CheckKey("", item.Key, false) != nil {
			continue // a card
		}
		view, err := look(item.Key, item.Entry)
		if err == nil && (len(view.Holds) > 0 || len(view.Waiters) > 0 || view.Run != nil) {
			page = append(page, view)
		}
	}
	if len(items) == most {
		next = hex.EncodeToString([]byte(items[most-1].Key))
	}
	return page, next, nil
}

func (s *Store) list(ctx context.Context, after string, most int) ([]Item, error) {
	return do(ctx, s, func(ctx context.Context) ([]Item, error) { return s.lister.List(ctx, after, most) })
}

// Revoke implements store.Inspector, in a place that is a Lister.
func (s *Store) Revoke(ctx context.Context, key, hold string, keep time.Duration) error {
	const op = "revoke"
	if s.lister == nil {
		return s.unsupported(op)
	}
	if err := claims.CheckKey(s.name+": "+op, key, false); err != nil {
		return err
	}
	if err := inspection.CheckRevoke(s.name+": "+op, hold, keep); err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	found := false
	err := s.step(ctx, op, move{key: key, apply: func(state *keystate.State, e Entry) (r result) {
		r.wake, found = state.Revoke(e.Now, hold, keep)
		r.save, r.current = found, true
		return r
	}})
	switch {
	case err != nil:
		return err
	case !found:
		return inspection.Lost(s.name + ": " + op)
	}
	return nil
}

// cards is the prefix of the keys of cards. No lock has such a key.
const cards = "{card}"

// Put implements store.Cards, in a place that is a Lister. A card is stored like the
// value of a record.
func (s *Store) Put(ctx context.Context, c store.Card, ttl time.Duration) error {
	const op = "put a card"
	if s.lister == nil {
		return s.unsupported(op)
	}
	text, err := inspection.EncodeCard(s.name+": "+op, c, ttl)
	if err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	return s.step(ctx, op, move{key: cards + c.Process, value: text, apply: func(state *keystate.State, e Entry) result {
		state.Record = &keystate.Record{Value: digest(text), Done: true, Until: e.Now.Add(ttl)}
		return result{save: true}
	}})
}

// Cards implements store.Cards, in a place that is a Lister. It makes one Load for each
// process, and leaves out a card that has expired or cannot be read.
func (s *Store) Cards(ctx context.Context) ([]store.Card, error) {
	const op = "cards"
	if s.lister == nil {
		return nil, s.unsupported(op)
	}
	var all []store.Card
	for after, more := cards, true; more; {
		items, err := s.list(ctx, after, store.MostListed)
		if err != nil {
			return nil, s.unchanged(op, err)
		}
		for _, item := range items {
			process, ok := strings.CutPrefix(item.Key, cards)
			if !ok {
				return all, nil
			}
			c, ok, err := s.card(ctx, process)
			if err != nil {
				return nil, s.unchanged(op, err)
			}
			if ok {
				all = append(all, c)
			}
			after = item.Key
		}
		more = len(items) == store.MostListed
	}
	return all, nil
}

// card returns the card of process. ok is false if the card has expired or cannot be
// read.
func (s *Store) card(ctx context.Context, process string) (c store.Card, ok bool, err error) {
	want := Want{Value: true}
	e, err := do(ctx, s, func(ctx context.Context) (Entry, error) { return s.place.Load(ctx, cards+process, want) })
	if err != nil {
		return c, false, err
	}
	state, err := s.read(e, want)
	if errors.Is(err, errDamaged) || errors.Is(err, errNewer) {
		return c, false, nil
	}
	if state.Record == nil || !state.Record.Until.After(e.Now) {
		return c, false, nil
	}
	c, ok = inspection.DecodeCard(process, e.Value)
	return c, ok, nil
}
