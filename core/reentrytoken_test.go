package core_test

import (
	"context"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
)

// raising is a store that gives each further hold of an owner a higher token, as a
// quorum can whose servers have heard of the first one at different times.
type raising struct {
	core.Store
	core.Watcher
}

func (r raising) Acquire(ctx context.Context, c core.Claim) (core.Grant, error) {
	g, err := r.Store.Acquire(ctx, c)
	if c.Via != "" && g.Token > 0 {
		g.Token += 1 << 14
	}
	return g, err
}

func TestReentryToken(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (*core.Locker, *core.Lease) {
		s := memstore.New()
		l := newLocker(t, raising{s, s})
		return l, acquire(t, t.Context(), l, "order:1")
	}
	sim(t, "a nested lease keeps the token of the lease that it re-enters, whatever the store says", func(t *testing.T) {
		l, outer := setup(t)
		inner := acquire(t, outer.Context(), l, "order:1")
		innermost := acquire(t, inner.Context(), l, "order:1")
		if outer.Token() == 0 || inner.Token() != outer.Token() || innermost.Token() != outer.Token() {
			t.Errorf("the tokens are %d, %d and %d", outer.Token(), inner.Token(), innermost.Token())
		}
		release(t, innermost)
		release(t, inner)
		release(t, outer)
	})
	sim(t, "a nested reader has none", func(t *testing.T) {
		l, outer := setup(t)
		inner := acquire(t, outer.Context(), l, "order:1", core.Shared())
		if inner.Token() != 0 {
			t.Errorf("the token is %d, want 0", inner.Token())
		}
		release(t, inner)
		release(t, outer)
	})
}
