package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/internal/inspection"
	"github.com/lockkit/lockkit/core/internal/keystate"
	"github.com/lockkit/lockkit/core/store"
)

// Look implements store.Inspector.
func (s *Store) Look(ctx context.Context, key string) (store.State, error) {
	const op = "memstore: look"
	if err := claims.CheckKey(op, key, true); err != nil {
		return store.State{}, err
	}
	var state store.State
	err := s.step(ctx, key, func(k *keystate.State, now time.Time) (wake []string) {
		state = k.Look(now, key)
		return nil
	})
	if err != nil {
		return store.State{}, fmt.Errorf("%s: %w", op, err)
	}
	return state, nil
}

// List implements store.Inspector. It returns keys in sorted order. The result next is
// the last key of the page, or "" for the last page.
func (s *Store) List(ctx context.Context, after string, most int) (page []store.State, next string, err error) {
	const op = "memstore: list"
	if err := inspection.CheckPage(op, most); err != nil {
		return nil, "", err
	}
	if !utf8.ValidString(after) || strings.ContainsRune(after, 0) {
		return nil, "", fmt.Errorf("%s: there is no such page: %w", op, store.ErrInvalid)
	}
	if ctx.Err() != nil {
		return nil, "", fmt.Errorf("%s: %w: %w", op, store.ErrUnavailable, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		if key <= after {
			continue
		}
		state := s.keys[key].Look(now, key)
		if len(state.Holds) == 0 && len(state.Waiters) == 0 && state.Run == nil {
			continue
		}
		if len(page) == most {
			return page, page[most-1].Key, nil
		}
		page = append(page, state)
	}
	return page, "", nil
}

// Revoke implements store.Inspector.
func (s *Store) Revoke(ctx context.Context, key, hold string, keep time.Duration) error {
	const op = "memstore: revoke"
	if err := claims.CheckKey(op, key, true); err != nil {
		return err
	}
	if err := inspection.CheckRevoke(op, hold, keep); err != nil {
		return err
	}
	found := false
	err := s.step(ctx, key, func(k *keystate.State, now time.Time) (wake []string) {
		wake, found = k.Revoke(now, hold, keep)
		return wake
	})
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", op, err)
	case !found:
		return inspection.Lost(op)
	}
	return nil
}
