package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/internal/inspection"
)

// Look implements core.Inspector.
func (s *Store) Look(ctx context.Context, key string) (core.State, error) {
	const op = "memstore: look"
	if err := claims.CheckKey(op, key, true); err != nil {
		return core.State{}, err
	}
	var state core.State
	err := s.step(ctx, key, func(e *entry) (changed bool) {
		state = e.show(key)
		return false
	})
	if err != nil {
		return core.State{}, fmt.Errorf("%s: %w", op, err)
	}
	return state, nil
}

// List implements core.Inspector, in the order of the keys. Next is the last key of
// the page.
func (s *Store) List(ctx context.Context, after string, most int) (page []core.State, next string, err error) {
	const op = "memstore: list"
	if err := inspection.CheckPage(op, most); err != nil {
		return nil, "", err
	}
	if !utf8.ValidString(after) || strings.ContainsRune(after, 0) {
		return nil, "", fmt.Errorf("%s: there is no such page: %w", op, core.ErrInvalid)
	}
	if ctx.Err() != nil {
		return nil, "", fmt.Errorf("%s: %w: %w", op, core.ErrUnavailable, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		if key <= after {
			continue
		}
		e := s.keys[key]
		e.expire(now)
		state := e.show(key)
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

// Revoke implements core.Inspector.
func (s *Store) Revoke(ctx context.Context, key, hold string, keep time.Duration) error {
	const op = "memstore: revoke"
	if err := claims.CheckKey(op, key, true); err != nil {
		return err
	}
	if err := inspection.CheckRevoke(op, hold, keep); err != nil {
		return err
	}
	found := false
	err := s.step(ctx, key, func(e *entry) (changed bool) {
		found = e.revoke(hold, keep)
		return found
	})
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", op, err)
	case !found:
		return inspection.Lost(op)
	}
	return nil
}

// show is the operator's view of the live holds and waiters.
func (e *entry) show(key string) core.State {
	state := core.State{Key: key}
	for lease, h := range e.holds {
		state.Holds = append(state.Holds, e.shown(lease, *h))
	}
	for _, h := range e.kept {
		state.Holds = append(state.Holds, e.shown("", h))
	}
	for _, p := range e.places {
		w := e.shown(p.claim.Lease, hold{weight: p.claim.Weight, since: p.since, until: p.until})
		w.Fair = p.claim.Fair
		state.Waiters = append(state.Waiters, w)
	}
	if r := e.record; r != nil {
		state.Run = &core.Run{Attempt: r.Attempt, Done: r.Done, Left: r.until.Sub(e.now)}
	}
	return state
}

// shown is what is shown of a lease; of what is kept, which has none, there is no ID.
func (e *entry) shown(lease string, h hold) core.Hold {
	shown := core.Hold{Process: core.ProcessOf(lease), Weight: h.weight, Age: e.now.Sub(h.since), Left: h.until.Sub(e.now)}
	if lease != "" {
		shown.ID = core.HoldID(lease)
	}
	return shown
}

// revoke ends the hold with this ID, and reports whether there was one.
func (e *entry) revoke(id string, keep time.Duration) bool {
	for lease, h := range e.holds {
		if core.HoldID(lease) != id {
			continue
		}
		delete(e.holds, lease)
		if keep > 0 {
			e.kept = append(e.kept, hold{weight: h.weight, since: e.now, until: later(h.until, e.now.Add(keep))})
		}
		return true
	}
	return false
}
