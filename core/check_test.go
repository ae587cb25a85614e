package core_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
)

// unfair is a store whose CheckClaim refuses fair claims and runs.
type unfair struct{ *memstore.Store }

func (unfair) CheckClaim(c store.Claim) error {
	if c.Fair || c.Record != nil {
		return fmt.Errorf("not here: %w", core.ErrUnsupported)
	}
	return nil
}

func TestAcquire_UnsupportedClaim(t *testing.T) {
	t.Parallel()
	l, err := core.New(unfair{memstore.New()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := adapter.Check(l, core.KeepFor(1)); err != nil {
		t.Errorf("served claim: got %v", err)
	}
	_, err = adapter.Check(l, core.Fair())
	wantErr(t, err, core.ErrUnsupported)
	_, err = adapter.CheckRun(l)
	wantErr(t, err, core.ErrUnsupported)
	_, err = core.New(unfair{memstore.New()}, core.WithDefaults(core.Fair()))
	wantErr(t, err, core.ErrUnsupported)
	for name, o := range map[string]core.AcquireOption{"option not served": core.Fair(), "one that is not allowed": core.TTL(-1)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("got a Guard with an %s", name)
				}
			}()
			core.Guard(l, func(int) (string, error) { return "order:1", nil }, func(context.Context, int) (int, error) { return 0, nil }, o)
		}()
	}
}
