// Package memstore implements store.Store in the memory of one process. It is the
// reference implementation, and a store for tests of code that uses a core.Locker:
//
//	locker, err := core.New(memstore.New())
//
// It supports every kind of claim. It reads the time with time.Now and runs nothing in
// the background. So in a testing/synctest bubble, a test with leases of a day takes
// only a moment. Lockers that share one Store behave like processes that share one
// server.
package memstore

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/keystate"
	"github.com/lockkit/lockkit/core/internal/words"
	"github.com/lockkit/lockkit/core/store"
)

// Store is a store.Store, store.Watcher, store.Checker, store.Inspector and store.Cards
// in memory. It is safe for concurrent use, blocks only on its own mutex, and needs no
// Close. If ctx is done, a call with valid arguments changes nothing and fails with
// store.ErrUnavailable.
type Store struct {
	mu      sync.Mutex
	keys    map[string]*keystate.State
	watches map[watched][]chan struct{}
	sweepAt int             // the number of keys at which sweep visits all keys
	cards   map[string]card // by the ID of the process
}

var (
	_ store.Watcher   = (*Store)(nil)
	_ store.Inspector = (*Store)(nil)
	_ store.Cards     = (*Store)(nil)
)

const minSweep = 64

// New returns an empty store.
func New() *Store {
	return &Store{
		keys:    make(map[string]*keystate.State),
		watches: make(map[watched][]chan struct{}),
		cards:   make(map[string]card),
		sweepAt: minSweep,
	}
}

// Acquire implements store.Store.
func (s *Store) Acquire(ctx context.Context, c store.Claim) (g store.Grant, err error) {
	if err := check(c); err != nil {
		return store.Grant{}, err
	}
	ctxErr := s.step(ctx, c.Key, func(k *keystate.State, now time.Time) (wake []string) {
		g, wake, err = k.Acquire(now, c)
		return wake
	})
	if ctxErr != nil {
		return store.Grant{}, fmt.Errorf("memstore: acquire: %w", ctxErr)
	}
	return g, err
}

// Extend implements store.Store.
func (s *Store) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	answers := make([]store.Extension, len(claims))
	for i, c := range claims {
		ctxErr := s.step(ctx, c.Key, func(k *keystate.State, now time.Time) (wake []string) {
			answers[i].Err = k.Extend(now, c)
			return nil
		})
		if ctxErr != nil {
			answers[i].Err = fmt.Errorf("memstore: extend: %w", ctxErr)
		}
	}
	return answers
}

// Release implements store.Store.
func (s *Store) Release(ctx context.Context, c store.Claim) (err error) {
	ctxErr := s.step(ctx, c.Key, func(k *keystate.State, now time.Time) (wake []string) {
		wake, err = k.Release(now, c)
		return wake
	})
	if ctxErr != nil {
		return fmt.Errorf("memstore: release: %w", ctxErr)
	}
	return err
}

// step runs fn on the state of key, and wakes the waiters that fn returns. It removes
// the key if its state is empty.
func (s *Store) step(ctx context.Context, key string, fn func(k *keystate.State, now time.Time) (wake []string)) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
	s.mu.Lock()
	now := time.Now()
	s.sweep(now)
	k := s.keys[key]
	if k == nil {
		k = new(keystate.State)
		s.keys[key] = k
	}
	var woken []chan struct{}
	for _, lease := range fn(k, now) {
		woken = append(woken, s.watches[watched{key, lease}]...)
	}
	if k.Empty(now) {
		delete(s.keys, key)
	}
	s.mu.Unlock()
	for _, ch := range woken {
		wake(ch)
	}
	return nil
}

// sweep removes empty states. It visits all keys when their number has doubled since
// the last visit. So the average cost of a new key is constant.
func (s *Store) sweep(now time.Time) {
	if len(s.keys) < s.sweepAt {
		return
	}
	maps.DeleteFunc(s.keys, func(_ string, k *keystate.State) bool { return k.Empty(now) })
	s.sweepAt = max(minSweep, 2*len(s.keys))
}

// maxToken is the highest token that a claim may require. It leaves room below 2^53,
// because the key could not be granted again after a token just below 2^53.
const maxToken = 1 << 52

// CheckClaim implements store.Checker.
func (s *Store) CheckClaim(c store.Claim) error { return check(c) }

// check returns an error for a claim that is not allowed. A Locker does not send such
// claims.
func check(c store.Claim) error {
	switch {
	case c.Key == "" || c.Owner == "" || c.Lease == "":
		return fmt.Errorf("memstore: acquire: key, owner or lease is empty: %w", store.ErrInvalid)
	case c.Weight < 1 || c.Weight > c.Limit:
		return fmt.Errorf("memstore: acquire: weight %d of limit %d is out of range (1 <= weight <= limit): %w", c.Weight, c.Limit, store.ErrInvalid)
	case c.TTL < time.Millisecond:
		return fmt.Errorf("memstore: acquire: TTL %s is out of range (at least 1 ms): %w", words.Duration(c.TTL), store.ErrInvalid)
	case c.Record != nil && c.Record.Retain < time.Millisecond:
		return fmt.Errorf("memstore: acquire: record has Retain %s, out of range (at least 1 ms): %w", words.Duration(c.Record.Retain), store.ErrInvalid)
	case c.MinToken > maxToken:
		return fmt.Errorf("memstore: acquire: MinToken is out of range (at most 2^52, so that tokens stay below 2^53): %w", store.ErrInvalid)
	case c.MinToken > 0 && c.Weight < store.All:
		return fmt.Errorf("memstore: acquire: MinToken of a claim that is not exclusive: %w", store.ErrUnsupported)
	}
	return nil
}
