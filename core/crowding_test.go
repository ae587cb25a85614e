package core_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/lockkit/lockkit/core"
)

func TestMaxWaiting(t *testing.T) {
	t.Parallel()
	// Each queue has a limit, and all queues together have a limit. A waiter that
	// leaves makes room.
	sim(t, "limits per queue and total", func(t *testing.T) {
		_, store := setup(t)
		l := newLocker(t, store, core.WithMaxWaiting(2, 3))
		var held []*core.Lease
		for _, key := range []string{"order:1", "order:2"} {
			held = append(held, acquire(t, t.Context(), l, key))
		}
		var wg sync.WaitGroup
		var served atomic.Int64 // atomic, because callers of two keys are served at the same time
		wait := func(ctx context.Context, key string) {
			wg.Go(func() {
				if err := l.Do(ctx, key, func(context.Context) error { served.Add(1); return nil }); ctx.Err() == nil && err != nil {
					t.Errorf("a waiter for %s got %v", key, err)
				}
			})
			synctest.Wait()
		}
		full := func(key string) {
			t.Helper()
			n := store.count()
			_, err := l.Acquire(t.Context(), key)
			wantErr(t, err, core.ErrBusy)
			if store.count() != n {
				t.Error("the store was asked")
			}
		}
		leaving, leave := context.WithCancel(t.Context())
		wait(t.Context(), "order:1") // the first in line
		wait(leaving, "order:1")
		wait(t.Context(), "order:1")
		full("order:1") // by the limit of its queue
		wait(t.Context(), "order:2")
		wait(t.Context(), "order:2")
		full("order:2") // by the limit of all queues
		release(t, acquire(t, t.Context(), l, "order:3"))
		leave()
		synctest.Wait()
		wait(t.Context(), "order:1")
		full("order:1")
		full("order:2")
		for _, lease := range held {
			release(t, lease)
		}
		wg.Wait()
		if n := served.Load(); n != 5 {
			t.Errorf("%d were served, want 5", n)
		}
		for range 2 { // earlier waiters no longer count
			held = append(held[:0], acquire(t, t.Context(), l, "order:1"))
			wait(t.Context(), "order:1")
			wait(t.Context(), "order:1")
			wait(t.Context(), "order:1")
			full("order:1")
			release(t, held[0])
			wg.Wait()
		}
	})
	sim(t, "0 is no limit", func(t *testing.T) {
		_, store := setup(t)
		l := newLocker(t, store, core.WithMaxWaiting(0, 0))
		holder := acquire(t, t.Context(), l, "order:1")
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if err := l.Do(t.Context(), "order:1", func(context.Context) error { return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		release(t, holder)
		wg.Wait()
	})
	t.Run("negative limit", func(t *testing.T) {
		for _, n := range [][2]int{{-1, 0}, {0, -1}} {
			_, err := core.New(granting{}, core.WithMaxWaiting(n[0], n[1]))
			wantErr(t, err, core.ErrInvalid)
		}
	})
}
