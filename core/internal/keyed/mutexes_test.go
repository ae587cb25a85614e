package keyed_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/lockkit/lockkit/core/internal/keyed"
)

func TestMutexes(t *testing.T) {
	t.Parallel()
	t.Run("one holder per key", func(t *testing.T) {
		t.Parallel()
		var m keyed.Mutexes[int]
		var all sync.WaitGroup
		counts := make([]int, 4) // guarded only by the mutexes
		for i := range 400 {
			all.Go(func() {
				key := i % len(counts)
				if err := m.Lock(t.Context(), key); err != nil {
					t.Error(err)
					return
				}
				defer m.Unlock(key)
				counts[key]++
			})
		}
		all.Wait()
		for key, n := range counts {
			if n != 100 {
				t.Errorf("key %d was taken %d times, want 100", key, n)
			}
			if !m.TryLock(key) || m.TryLock(key) {
				t.Errorf("key %d is taken, or two have it", key)
			}
		}
	})
	t.Run("a waiter can leave", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var m keyed.Mutexes[string]
			if err := m.Lock(t.Context(), "key"); err != nil {
				t.Fatal(err)
			}
			why := errors.New("why")
			ctx, cancel := context.WithCancelCause(t.Context())
			left := make(chan error)
			go func() { left <- m.Lock(ctx, "key") }()
			synctest.Wait()
			cancel(why)
			if err := <-left; !errors.Is(err, why) {
				t.Errorf("got %v, want %v", err, why)
			}
			m.Unlock("key")
			if !m.TryLock("key") {
				t.Error("the key is taken")
			}
		})
	})
}
