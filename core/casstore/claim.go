package casstore

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/keystate"
	"github.com/lockkit/lockkit/core/store"
)

// Acquire implements store.Store. If the Place is a Usual, Acquire takes a free key for
// a usual lock in one step. The exception is a lease whose last Acquire was refused.
// Any other acquire takes a Load and a Save. A refusal usually needs no Save if the
// claim does not wait, or if its queue entry has used less than a quarter of its
// lifetime. A refused re-entry takes a second Load, of the newest entry.
func (s *Store) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	const op = "acquire"
	if err := s.check(op, &c); err != nil {
		return store.Grant{}, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := s.gate.Enter(ctx); err != nil {
		return store.Grant{}, s.unchanged(op, err)
	}
	again := s.refused.remove(c.Lease)
	m := move{key: c.Key}
	if s.usual != nil && !again && isUsual(&c) && c.Record == nil {
		token, ok, err := s.take(ctx, c)
		switch {
		case errors.Is(err, ErrConflict):
		case err != nil:
			return store.Grant{}, s.unwritten(op, err)
		case ok:
			s.sweep()
			return store.Grant{Owner: c.Owner, Token: token}, nil
		default:
			m.sent = s.pooled == nil
		}
	}
	g, err := s.acquire(ctx, c, m)
	switch {
	case errors.Is(err, store.ErrBusy):
		s.refused.add(c.Lease)
	case err == nil:
		s.sweep()
	}
	return g, err
}

type taken struct {
	token uint64
	ok    bool
}

func (s *Store) take(ctx context.Context, c store.Claim) (token uint64, ok bool, err error) {
	if err := s.turns.Lock(ctx, c.Key); err != nil {
		return 0, false, &endedError{err, false}
	}
	defer s.turns.Unlock(c.Key)
	t, err := do(ctx, s, func(ctx context.Context) (taken, error) {
		token, ok, err := s.usual.Take(ctx, c, version())
		return taken{token, ok}, err
	})
	return t.token, t.ok, err
}

// acquire acquires c by Load and Save.
func (s *Store) acquire(ctx context.Context, c store.Claim, m move) (g store.Grant, err error) {
	asked := c.Record
	if asked != nil {
		// The rule uses the digest of the value.
		c.Record = &store.Record{Value: digest(asked.Value), Retain: asked.Retain}
		m.want.Value, m.value = true, asked.Value
	}
	var kept []byte
	m.apply = func(state *keystate.State, e Entry) (r result) {
		place := placeOf(state, c.Lease)
		g, r.wake, err = state.Acquire(e.Now, c)
		kept = e.Value
		r.save = err == nil && (g.Record == nil || !g.Record.Done)
		r.current = c.Via != "" && errors.Is(err, store.ErrBusy) // a joiner takes it for a loss
		if errors.Is(err, store.ErrBusy) && place != nil {
			settle(state, *place, c)
		}
		return r
	}
	if failed := s.step(ctx, "acquire", m); failed != nil {
		return store.Grant{}, failed
	}
	if g.Record != nil {
		value := kept
		if bytes.Equal(g.Record.Value, c.Record.Value) {
			value = asked.Value
		}
		g.Record.Value = bytes.Clone(value)
	}
	return g, s.failed("acquire", err)
}

// placeOf returns the queue entry of lease, or nil.
func placeOf(state *keystate.State, lease string) *keystate.Waiter {
	for _, w := range state.Waiters {
		if w.Lease == lease {
			return &w
		}
	}
	return nil
}

// settle restores the earlier deadline of c's queue entry, unless a quarter of the
// entry's lifetime has passed. So repeated acquires of one claim cause few writes.
func settle(state *keystate.State, before keystate.Waiter, c store.Claim) {
	now := placeOf(state, c.Lease)
	if now == nil || now.Until.Sub(before.Until) >= min(c.TTL, store.WaiterLife)/4 {
		return
	}
	for i := range state.Waiters {
		if state.Waiters[i].Lease == c.Lease {
			state.Waiters[i].Until = before.Until
		}
	}
}

// isUsual reports whether c is an exclusive claim whose lease and owner fit into Alone.
func isUsual(c *store.Claim) bool {
	return c.Weight == store.All && c.Limit == store.All && max(len(c.Lease), len(c.Owner)) <= maxWord
}

func version() int64 { return rand.Int64N(math.MaxInt64) + 1 }

// Release implements store.Store. If the Place is a Usual, Release releases a usual
// hold in one step. The exceptions are a release with a record, Keep or Undo, and a
// lease whose last Acquire was refused. Any other release takes a Load and a Save.
func (s *Store) Release(ctx context.Context, c store.Claim) error {
	const op = "release"
	if err := s.check(op, &c); err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	again := s.refused.remove(c.Lease)
	m := move{key: c.Key}
	if s.usual != nil && !again && c.Record == nil && c.Keep == 0 && !c.Undo && len(c.Lease) <= maxWord {
		m.want.Current = true
		wrote := version()
		ok, err := s.give(ctx, c, wrote)
		switch {
		case errors.Is(err, ErrConflict):
		case err != nil:
			return s.unwritten(op, err)
		case ok:
			return nil
		default:
			m.sent, m.wrote = s.pooled == nil, wrote
		}
	}
	return s.release(ctx, c, m)
}

func (s *Store) give(ctx context.Context, c store.Claim, wrote int64) (bool, error) {
	if err := s.turns.Lock(ctx, c.Key); err != nil {
		return false, &endedError{err, false}
	}
	defer s.turns.Unlock(c.Key)
	return do(ctx, s, func(ctx context.Context) (bool, error) { return s.usual.Give(ctx, c, wrote) })
}

// release releases c by Load and Save.
func (s *Store) release(ctx context.Context, c store.Claim, m move) (err error) {
	if r := c.Record; r != nil {
		sum := *r
		sum.Value, m.value = digest(r.Value), r.Value
		c.Record = &sum
	}
	var until time.Time // the expiry of the hold or queue entry that an earlier attempt has found
	m.apply = func(state *keystate.State, e Entry) (r result) {
		// As in Commit, an old entry is proof enough, because this stays true.
		if state.HasSavedOther(e.Now, c) {
			err = store.ErrSaved
			return result{}
		}
		gone := until.After(e.Now)
		if end := endOf(state, c.Lease, e.Now); !end.IsZero() {
			until = end
		}
		r.wake, err = state.Release(e.Now, c)
		r.save, r.current = err == nil, true
		if gone && errors.Is(err, store.ErrLost) {
			err = errUnsure
		}
		return r
	}
	if failed := s.step(ctx, "release", m); failed != nil {
		return failed
	}
	if errors.Is(err, errUnsure) {
		return s.unknown("release", err)
	}
	return s.failed("release", err)
}

// endOf returns the time at which the hold or the queue entry of lease expires. It
// returns the zero time if there is neither, or if the entry has expired.
func endOf(state *keystate.State, lease string, now time.Time) time.Time {
	for _, h := range state.Holds {
		if h.Lease == lease && h.Owner != "" && h.Until.After(now) {
			return h.Until
		}
	}
	if w := placeOf(state, lease); w != nil && w.Until.After(now) {
		return w.Until
	}
	return time.Time{}
}

const (
	// mostTogether is the maximum number of claims in a Usual.Extend.
	mostTogether = 512
	// sideBySide is the number of keys that are extended in parallel by a Load and a
	// Save each. A slow key, such as a key with a locked entry, delays others for at
	// most patience.
	sideBySide = 8
	patience   = 100 * time.Millisecond
)

// Extend implements store.Store. If the Place is a Usual, Extend extends the usual
// holds together, at most 512 in a call of the Place. Such a call does not wait for
// other calls of this process. For any other key Extend makes one Load and one Save for
// all claims of the key. It extends eight such keys in parallel, or more if some keys
// are slow.
func (s *Store) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	ctx, cancel := bounded(ctx)
	defer cancel()
	answers := make([]store.Extension, len(claims))
	var keys []string
	byKey := make(map[string][]int)
	for i := range claims {
		if answers[i].Err = s.check("extend", &claims[i]); answers[i].Err != nil {
			continue
		}
		if byKey[claims[i].Key] == nil {
			keys = append(keys, claims[i].Key)
		}
		byKey[claims[i].Key] = append(byKey[claims[i].Key], i)
	}
	if s.usual != nil {
		keys = s.extendUsual(ctx, claims, keys, byKey, answers)
	}
	var all sync.WaitGroup
	tickets := make(chan struct{}, sideBySide)
	for _, key := range keys {
		tickets <- struct{}{}
		all.Go(func() {
			next := sync.OnceFunc(func() { <-tickets })
			defer next()
			defer time.AfterFunc(patience, next).Stop()
			s.extend(ctx, claims, key, byKey[key], answers)
		})
	}
	all.Wait()
	return answers
}

// extendUsual extends the holds that may be usual. It returns the other keys, and the
// keys for which the Place has returned false or ErrConflict.
func (s *Store) extendUsual(ctx context.Context, all []store.Claim, keys []string, byKey map[string][]int, answers []store.Extension) (rest []string) {
	var some []string
	for _, key := range keys {
		if c := &all[byKey[key][0]]; len(byKey[key]) == 1 && isUsual(c) && c.Record == nil {
			some = append(some, key)
		} else {
			rest = append(rest, key)
		}
	}
	for keys := range slices.Chunk(some, mostTogether) {
		claims := make([]store.Claim, len(keys))
		for i, key := range keys {
			claims[i] = all[byKey[key][0]]
		}
		done, err := do(ctx, s, func(ctx context.Context) ([]bool, error) { return s.usual.Extend(ctx, claims, version()) })
		if err == nil && len(done) != len(keys) {
			err = errors.New("the place has not answered for each claim")
		}
		for i, key := range keys {
			switch {
			case len(done) == len(keys) && done[i]:
			case err == nil, errors.Is(err, ErrConflict):
				rest = append(rest, key)
			default:
				answers[byKey[key][0]].Err = s.unwritten("extend", err)
			}
		}
	}
	return rest
}

// extend extends the holds of key for those claims whose indexes are in the slice some.
func (s *Store) extend(ctx context.Context, claims []store.Claim, key string, some []int, answers []store.Extension) {
	errs := make([]error, len(some))
	failed := s.step(ctx, "extend", move{key: key, apply: func(state *keystate.State, e Entry) (r result) {
		for i, at := range some {
			errs[i] = state.Extend(e.Now, claims[at])
			r.save = r.save || errs[i] == nil
		}
		r.current = true
		return r
	}})
	for i, at := range some {
		if answers[at].Err = s.failed("extend", errs[i]); failed != nil {
			answers[at].Err = failed
		}
	}
}
