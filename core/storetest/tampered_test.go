package storetest_test

import (
	"context"
	"sync"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
)

// tampered is the sound store with some of its methods replaced.
type tampered struct {
	*memstore.Store
	acquire func(ctx context.Context, c core.Claim) (core.Grant, error)
	extend  func(ctx context.Context, claims []core.Claim) []core.Extension
	release func(ctx context.Context, c core.Claim) error
	watch   func(ctx context.Context, c core.Claim) (<-chan struct{}, error)
	check   func(c core.Claim) error
	over    context.Context // ends with the case
	ledger
}

// Braces implements core.Braced: memstore takes every key.
func (s *tampered) Braces() bool { return true }

func (s *tampered) CheckClaim(c core.Claim) error {
	if s.check == nil {
		return s.Store.CheckClaim(c)
	}
	return s.check(c)
}

func (s *tampered) Acquire(ctx context.Context, c core.Claim) (core.Grant, error) {
	if s.acquire == nil {
		return s.Store.Acquire(ctx, c)
	}
	return s.acquire(ctx, c)
}

func (s *tampered) Extend(ctx context.Context, claims []core.Claim) []core.Extension {
	if s.extend == nil {
		return s.Store.Extend(ctx, claims)
	}
	return s.extend(ctx, claims)
}

func (s *tampered) Release(ctx context.Context, c core.Claim) error {
	if s.release == nil {
		return s.Store.Release(ctx, c)
	}
	return s.release(ctx, c)
}

func (s *tampered) Watch(ctx context.Context, c core.Claim) (<-chan struct{}, error) {
	if s.watch == nil {
		return s.Store.Watch(ctx, c)
	}
	return s.watch(ctx, c)
}

// extendEach is an Extend that asks fn about each claim.
func extendEach(fn func(ctx context.Context, c core.Claim) error) func(context.Context, []core.Claim) []core.Extension {
	return func(ctx context.Context, claims []core.Claim) []core.Extension {
		answers := make([]core.Extension, len(claims))
		for i, c := range claims {
			answers[i].Err = fn(ctx, c)
		}
		return answers
	}
}

// extendSound extends c at the sound store.
func (s *tampered) extendSound(ctx context.Context, c core.Claim) error {
	return s.Store.Extend(ctx, []core.Claim{c})[0].Err
}

// ledger is what a broken store remembers of its own.
type ledger struct {
	mu     sync.Mutex
	claims map[string]core.Claim // by lease or key, as the flaw likes
	counts map[string]int
	tokens map[string]uint64
	line   []core.Claim
	gates  []gated
}

func (l *ledger) lock() func() {
	l.mu.Lock()
	if l.claims == nil {
		l.claims = make(map[string]core.Claim)
		l.counts = make(map[string]int)
		l.tokens = make(map[string]uint64)
	}
	return l.mu.Unlock
}

// note remembers c under name.
func (l *ledger) note(name string, c core.Claim) {
	defer l.lock()()
	l.claims[name] = c
}

func (l *ledger) noted(name string) (core.Claim, bool) {
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

// count adds n to what is counted under name and returns the sum.
func (l *ledger) count(name string, n int) int {
	defer l.lock()()
	l.counts[name] += n
	return l.counts[name]
}

// queue adds c to the line, at most once for each lease.
func (l *ledger) queue(c core.Claim) {
	defer l.lock()()
	for _, q := range l.line {
		if q.Lease == c.Lease {
			return
		}
	}
	l.line = append(l.line, c)
}

func (l *ledger) queued() []core.Claim {
	defer l.lock()()
	return append([]core.Claim(nil), l.line...)
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
