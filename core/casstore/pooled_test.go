package casstore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/store"
)

// pooled is a place with few connections, and a separate connection for probes.
type pooled struct {
	*bad
	free   chan struct{}
	mu     sync.Mutex
	probed func() error
	probes int
}

type link struct{}

func newPooled(size int) *pooled {
	p := &pooled{bad: &bad{memory: newMemory()}, free: make(chan struct{}, size)}
	for range size {
		p.free <- struct{}{}
	}
	return p
}

func (p *pooled) Connect(ctx context.Context) (context.Context, func(), error) {
	select {
	case <-p.free:
		return context.WithValue(ctx, link{}, p), func() { p.free <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

func (p *pooled) Load(ctx context.Context, key string, w casstore.Want) (casstore.Entry, error) {
	if ctx.Value(link{}) != p {
		return casstore.Entry{}, errors.New("a load without a connection")
	}
	return p.bad.Load(ctx, key, w)
}

func (p *pooled) Take(ctx context.Context, c store.Claim, version int64) (uint64, bool, error) {
	if ctx.Value(link{}) != p {
		return 0, false, errors.New("a take without a connection")
	}
	return p.bad.Take(ctx, c, version)
}

func (p *pooled) Probe(context.Context) error {
	p.mu.Lock()
	p.probes++
	probed := p.probed
	p.mu.Unlock()
	if probed == nil {
		return nil
	}
	return probed()
}

// probe sets what Probe calls, and returns the number of its calls so far.
func (p *pooled) probe(f func() error) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probed = f
	return p.probes
}

// TestPooled_LeftWhileWaiting checks that a caller that leaves while it waits for a
// connection has sent nothing.
func TestPooled_LeftWhileWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPooled(1)
		s := newStore(t, p)
		held := claim("held")
		acquire(t, s, held)
		<-p.free
		before, gone := p.usual, errors.New("gone")
		for name, call := range map[string]func(ctx context.Context) error{
			"acquire": func(ctx context.Context) error { _, err := s.Acquire(ctx, claim("key")); return err },
			"extend":  func(ctx context.Context) error { return s.Extend(ctx, []store.Claim{held})[0].Err },
			"release": func(ctx context.Context) error { return s.Release(ctx, held) },
		} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, gone)
			if err := call(ctx); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, gone) {
				t.Errorf("%s: got %v, want %v because of %v", name, err, store.ErrUnavailable, gone)
			}
			cancel()
		}
		p.free <- struct{}{}
		time.Sleep(10 * time.Second)
		if p.usual != before || p.extends != 0 || p.saves != 0 {
			t.Errorf("got %d steps, %d extensions and %d saves, want none", p.usual-before, p.extends, p.saves)
		}
		acquire(t, s, claim("key"))
		release(t, s, held, nil)
		if len(p.free) != 1 {
			t.Errorf("%d connections are free, want 1", len(p.free))
		}
	})
}

// TestPooled_LeftWhileAsking checks that a call keeps its connection until it returns,
// even if its caller has left.
func TestPooled_LeftWhileAsking(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPooled(1)
		s := newStore(t, p)
		p.set(func(_ string, write func()) error { time.Sleep(time.Second); write(); return nil })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := s.Acquire(ctx, claim("key")); err == nil || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
		if len(p.free) != 0 {
			t.Error("the connection is free while it is used")
		}
		time.Sleep(time.Second)
		if len(p.free) != 1 {
			t.Error("the connection is not free")
		}
	})
}

// TestPooled_RefusedOnce checks that a refused write has changed nothing, because its
// connection cannot have sent it twice.
func TestPooled_RefusedOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		place   func(b *bad) casstore.Place
		certain bool
	}{
		"pooled place": {func(b *bad) casstore.Place { p := newPooled(1); p.bad = b; return p }, true},
		"plain place":  {func(b *bad) casstore.Place { return b }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &bad{memory: newMemory()}
				s := newStore(t, c.place(b))
				acquire(t, s, claim("key"))
				b.set(func(op string, write func()) error {
					if op == "load" {
						return errors.Join(store.ErrUnavailable, errBroken)
					}
					write()
					return nil
				})
				if _, err := s.Acquire(t.Context(), claim("key")); !errors.Is(err, errBroken) || errors.Is(err, store.ErrUnavailable) != c.certain {
					t.Errorf("got %v, want that nothing was changed to be certain: %v", err, c.certain)
				}
			})
		})
	}
}

// TestProber_Hangs checks that a place is used again after an outage, although a probe
// does not return when its context is done.
func TestProber_Hangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, end := newPooled(1), make(chan struct{})
		defer close(end)
		s := newStore(t, p)
		p.set(func(string, func()) error { return errors.Join(store.ErrUnavailable, errBroken) })
		p.probe(func() error { return errBroken })
		time.Sleep(2 * time.Second)
		_, _ = s.Acquire(t.Context(), claim("key"))
		time.Sleep(time.Second)
		var hung atomic.Bool
		p.probe(func() error {
			if !hung.Swap(true) {
				<-end
			}
			return nil
		})
		p.set(nil)
		_, _ = s.Acquire(t.Context(), claim("key"))
		time.Sleep(5 * time.Second)
		_, _ = s.Acquire(t.Context(), claim("key"))
		time.Sleep(time.Second)
		if !hung.Load() {
			t.Fatal("test setup: no probe has hung")
		}
		acquire(t, s, claim("other"))
	})
}

// TestProber checks that in an outage the Store calls Probe of a Prober, and not Load.
func TestProber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPooled(1)
		s := newStore(t, p)
		p.set(func(string, func()) error { return errors.Join(store.ErrUnavailable, errBroken) })
		probed := func() error { return errBroken }
		p.probe(probed)
		time.Sleep(2 * time.Second)
		_, _ = s.Acquire(t.Context(), claim("key"))
		time.Sleep(time.Second)
		loads := p.loads
		_, err := s.Acquire(t.Context(), claim("key"))
		var known interface{ Down() bool }
		if probes := p.probe(probed); !errors.As(err, &known) || !known.Down() || probes == 0 || p.loads != loads {
			t.Errorf("got %v after %d probes and %d loads, want that the place is known to be down by a probe", err, probes, p.loads-loads)
		}
		p.set(nil)
		p.probe(nil)
		time.Sleep(time.Second)
		acquire(t, s, claim("key"))
	})
}
