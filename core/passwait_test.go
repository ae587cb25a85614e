package core_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
)

// TestRelease_WaitsWithinItsHold checks a release that waits until the next waiter of
// its process has a place at the store. The hold is not extended during that wait.
func TestRelease_WaitsWithinItsHold(t *testing.T) {
	t.Parallel()
	// Even with a short TTL, the hold still exists at the store when it is released.
	sim(t, "short lease", func(t *testing.T) {
		for at := 10 * time.Millisecond; at < 90*time.Millisecond; at += 5 * time.Millisecond {
			l, store := setup(t)
			lease := acquire(t, t.Context(), l, "order:1", core.TTL(100*time.Millisecond), core.MaxHold(5*time.Millisecond))
			ctx, leave := context.WithCancel(t.Context())
			behind := func(ctx context.Context, o ...core.AcquireOption) {
				go func() {
					lease, err := l.Acquire(ctx, "order:1", o...)
					if err == nil {
						err = lease.Release(t.Context())
					}
					if err != nil && ctx.Err() == nil {
						t.Errorf("the next: %v", err)
					}
				}()
				synctest.Wait()
			}
			behind(ctx)
			behind(t.Context(), core.TTL(10*time.Second))
			time.Sleep(at)
			store.set(first(1, hang), opAcquire)
			leave() // so that the other waiter asks the store
			synctest.Wait()
			if err := lease.Context().Err(); err != nil {
				t.Fatalf("test setup: after %v: got %v", at, err)
			}
			start := time.Now()
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("a release after %v, of a lease that was held: %v after %v", at, err, time.Since(start))
			}
			time.Sleep(time.Minute)
		}
	})
}
