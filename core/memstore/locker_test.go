package memstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
)

// TestLease_VirtualTime shows how a user's test lets leases expire in virtual time.
func TestLease_VirtualTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker, err := core.New(memstore.New())
		if err != nil {
			t.Fatal(err)
		}
		lease, err := locker.Acquire(t.Context(), "order:42", core.TTL(time.Minute), core.NoRenew())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if cause := context.Cause(lease.Context()); !errors.Is(cause, store.ErrLost) {
			t.Errorf("the lease ended because of %v, want %v", cause, store.ErrLost)
		}
		if err := lease.Release(t.Context()); !errors.Is(err, store.ErrLost) {
			t.Errorf("release: got %v, want %v", err, store.ErrLost)
		}
	})
}
