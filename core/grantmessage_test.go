package core_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
)

func TestShortGrant(t *testing.T) {
	t.Parallel()
	// If the second call for a short grant of a NoRenew lease fails, no hold is left.
	sim(t, "unanswered second call", func(t *testing.T) {
		l, store := setup(t)
		short := &shortly{Store: store.inner}
		store.inner = short
		for range 2 {
			store.set(func(ctx context.Context, n int, do func() error) error {
				if n > 1 {
					return fmt.Errorf("%w: connection refused", core.ErrUnavailable)
				}
				return do()
			}, opAcquire)
			_, err := l.TryAcquire(t.Context(), "order:1", core.NoRenew())
			wantErr(t, err, core.ErrUnavailable)
			store.set(nil, opAcquire)
			time.Sleep(3 * time.Second)
			wantFree(t, store.inner, "order:1")
		}
	})
}

func TestLease_GrantedByMessage(t *testing.T) {
	t.Parallel()
	extended := func(s *scripted) (n int) {
		for _, c := range s.sent(opExtend) {
			for _, claim := range c.claims {
				if claim.Key == "order:1" {
					n++
				}
			}
		}
		return n
	}
	grantedTo := func(t *testing.T, l *core.Locker, s *scripted, o ...core.AcquireOption) *core.Lease {
		t.Helper()
		s.inner = &pushing{s.inner.(*memstore.Store)}
		holder := acquire(t, t.Context(), newLocker(t, s.inner), "order:1")
		time.AfterFunc(5*time.Second, func() { holder.Release(context.Background()) })
		return acquire(t, t.Context(), l, "order:1", o...)
	}
	granted := func(t *testing.T, o ...core.AcquireOption) (*core.Lease, *scripted) {
		t.Helper()
		l, s := setup(t)
		return grantedTo(t, l, s, o...), s
	}
	sim(t, "extended soon to its TTL", func(t *testing.T) {
		lease, s := granted(t)
		if left := time.Until(lease.Deadline()); left > time.Second {
			t.Fatalf("got %v at the grant, want a short one", left)
		}
		time.Sleep(20 * time.Millisecond)
		if left := time.Until(lease.Deadline()); left < 20*time.Second {
			t.Errorf("got %v after the grant, want the TTL", left)
		}
		time.Sleep(5 * time.Second)
		if n := extended(s); n != 1 {
			t.Errorf("got %d extensions, want 1", n)
		}
		release(t, lease)
	})
	sim(t, "released before that", func(t *testing.T) {
		lease, s := granted(t)
		time.Sleep(5 * time.Millisecond)
		release(t, lease)
		time.Sleep(time.Second)
		if n := extended(s); n != 0 {
			t.Errorf("got %d extensions, want none", n)
		}
	})
	// A lease that is released before its first extension is not extended, even if
	// another lease is extended often.
	sim(t, "released beside an extended lease", func(t *testing.T) {
		for range 50 {
			l, s := setup(t)
			other := acquire(t, t.Context(), l, "order:2", core.TTL(100*time.Millisecond))
			lease := grantedTo(t, l, s)
			time.Sleep(4 * time.Millisecond)
			release(t, lease)
			time.Sleep(time.Second)
			release(t, other)
			if n := extended(s); n != 0 {
				t.Errorf("got %d extensions, want none", n)
			}
		}
	})
	sim(t, "TTL hardly longer", func(t *testing.T) {
		lease, s := granted(t, core.TTL(pushedFor*4/3))
		time.Sleep(pushedFor / 4)
		if n := extended(s); n != 0 {
			t.Errorf("got %d extensions, want none yet", n)
		}
		release(t, lease)
	})
}

// pushing is a store that grants claims with Push for a short time, like a store that
// grants by message.
type pushing struct{ *memstore.Store }

const pushedFor = time.Second

func (s *pushing) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if !c.Push {
		return s.Store.Acquire(ctx, c)
	}
	c.TTL = pushedFor
	g, err := s.Store.Acquire(ctx, c)
	g.Valid = pushedFor
	return g, err
}

// shortly is a store whose grants report a validity of one second.
type shortly struct{ core.Store }

func (s *shortly) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	g.Valid = time.Second
	return g, err
}
