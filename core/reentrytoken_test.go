package core_test

import (
	"context"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
)

// shifting is a store that reports a different token for a claim that joins than for
// the first hold. A quorum does so if its servers receive the first hold at different
// times. A single server does so if it knows the time of the grant only roughly.
type shifting struct {
	core.Store
	store.Watcher
	by int
}

func (s shifting) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if c.Via != "" && g.Token > 0 {
		g.Token += uint64(s.by)
	}
	return g, err
}

func TestReentryToken(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T, by int) (*core.Locker, *core.Lease) {
		s := memstore.New()
		l := newLocker(t, shifting{s, s, by})
		return l, acquire(t, t.Context(), l, "order:1")
	}
	for name, by := range map[string]int{"later token from the store": 1 << 14, "earlier token from the store": -1 << 14} {
		sim(t, name, func(t *testing.T) {
			l, outer := setup(t, by)
			inner := acquire(t, outer.Context(), l, "order:1")
			innermost := acquire(t, inner.Context(), l, "order:1")
			if outer.Token() == 0 || inner.Token() != outer.Token() || innermost.Token() != outer.Token() {
				t.Errorf("the tokens are %d, %d and %d", outer.Token(), inner.Token(), innermost.Token())
			}
			release(t, innermost)
			release(t, inner)
			release(t, outer)
		})
	}
	sim(t, "nested reader", func(t *testing.T) {
		l, outer := setup(t, 1<<14)
		inner := acquire(t, outer.Context(), l, "order:1", core.Shared())
		if inner.Token() != 0 {
			t.Errorf("the token is %d, want 0", inner.Token())
		}
		release(t, inner)
		release(t, outer)
	})
}
