package storetest_test

import (
	"context"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
)

// tampered is a memstore (the sound store) with some of its methods replaced.
type tampered struct {
	*memstore.Store
	acquire func(ctx context.Context, c store.Claim) (store.Grant, error)
	extend  func(ctx context.Context, claims []store.Claim) []store.Extension
	release func(ctx context.Context, c store.Claim) error
	watch   func(ctx context.Context, c store.Claim) (<-chan struct{}, error)
	check   func(c store.Claim) error
	look    func(ctx context.Context, key string) (store.State, error)
	list    func(ctx context.Context, after string, most int) ([]store.State, string, error)
	revoke  func(ctx context.Context, key, hold string, keep time.Duration) error
	put     func(ctx context.Context, c store.Card, ttl time.Duration) error
	cards   func(ctx context.Context) ([]store.Card, error)
	over    context.Context // done at the end of the case
	ledger
}

// Braces implements store.Braced. It returns true, because memstore accepts every key.
func (s *tampered) Braces() bool { return true }

func (s *tampered) CheckClaim(c store.Claim) error {
	if s.check == nil {
		return s.Store.CheckClaim(c)
	}
	return s.check(c)
}

func (s *tampered) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if s.acquire == nil {
		return s.Store.Acquire(ctx, c)
	}
	return s.acquire(ctx, c)
}

func (s *tampered) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	if s.extend == nil {
		return s.Store.Extend(ctx, claims)
	}
	return s.extend(ctx, claims)
}

func (s *tampered) Release(ctx context.Context, c store.Claim) error {
	if s.release == nil {
		return s.Store.Release(ctx, c)
	}
	return s.release(ctx, c)
}

func (s *tampered) Watch(ctx context.Context, c store.Claim) (<-chan struct{}, error) {
	if s.watch == nil {
		return s.Store.Watch(ctx, c)
	}
	return s.watch(ctx, c)
}

func (s *tampered) Look(ctx context.Context, key string) (store.State, error) {
	if s.look == nil {
		return s.Store.Look(ctx, key)
	}
	return s.look(ctx, key)
}

func (s *tampered) List(ctx context.Context, after string, most int) ([]store.State, string, error) {
	if s.list == nil {
		return s.Store.List(ctx, after, most)
	}
	return s.list(ctx, after, most)
}

func (s *tampered) Revoke(ctx context.Context, key, hold string, keep time.Duration) error {
	if s.revoke == nil {
		return s.Store.Revoke(ctx, key, hold, keep)
	}
	return s.revoke(ctx, key, hold, keep)
}

func (s *tampered) Put(ctx context.Context, c store.Card, ttl time.Duration) error {
	if s.put == nil {
		return s.Store.Put(ctx, c, ttl)
	}
	return s.put(ctx, c, ttl)
}

func (s *tampered) Cards(ctx context.Context) ([]store.Card, error) {
	if s.cards == nil {
		return s.Store.Cards(ctx)
	}
	return s.cards(ctx)
}

// extendEach returns an Extend that answers each claim with the error of fn.
func extendEach(fn func(ctx context.Context, c store.Claim) error) func(context.Context, []store.Claim) []store.Extension {
	return func(ctx context.Context, claims []store.Claim) []store.Extension {
		answers := make([]store.Extension, len(claims))
		for i, c := range claims {
			answers[i].Err = fn(ctx, c)
		}
		return answers
	}
}

func (s *tampered) extendSound(ctx context.Context, c store.Claim) error {
	return s.Store.Extend(ctx, []store.Claim{c})[0].Err
}

// ledger is the memory of a store with a flaw.
type ledger struct {
	mu     sync.Mutex
	claims map[string]store.Claim // by a name that the flaw chooses
	counts map[string]int
	tokens map[string]uint64
	line   []store.Claim
	gates  []gated
}

func (l *ledger) lock() func() {
	l.mu.Lock()
	if l.claims == nil {
		l.claims = make(map[string]store.Claim)
		l.counts = make(map[string]int)
		l.tokens = make(map[string]uint64)
	}
	return l.mu.Unlock
}

func (l *ledger) note(name string, c store.Claim) {
	defer l.lock()()
	l.claims[name] = c
}

func (l *ledger) noted(name string) (store.Claim, bool) {
	defer l.lock()()
	c, ok := l.claims[name]
	return c, ok
}

func (l *ledger) forget(name string) {
	defer l.lock()()
	delete(l.claims, name)
	delete(l.counts, name)
	delete(l.tokens, name)
}

func (l *ledger) count(name string, n int) int {
	defer l.lock()()
	l.counts[name] += n
	return l.counts[name]
}

func (l *ledger) queue(c store.Claim) {
	defer l.lock()()
	for _, q := range l.line {
		if q.Lease == c.Lease {
			return
		}
	}
	l.line = append(l.line, c)
}

func (l *ledger) queued() []store.Claim {
	defer l.lock()()
	return append([]store.Claim(nil), l.line...)
}

func (l *ledger) unqueue(lease string) {
	defer l.lock()()
	for i, q := range l.line {
		if q.Lease == lease {
			l.line = append(l.line[:i:i], l.line[i+1:]...)
			return
		}
	}
}
