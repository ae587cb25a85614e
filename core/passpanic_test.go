package core_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

func recovered(fn func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	fn()
	return false
}

// TestAcquire_Panics checks that an acquire that panics leaves no hold and no work
// behind. A server continues after the panic of a request.
func TestAcquire_Panics(t *testing.T) {
	t.Parallel()
	sim(t, "in the store", func(t *testing.T) {
		for name, do := range map[string]bool{"before": false, "after": true} {
			l, store := setup(t)
			store.set(func(_ context.Context, n int, call func() error) error {
				if n < 2 {
					return call()
				}
				if do {
					call()
				}
				store.set(nil, opAcquire)
				panic("store")
			}, opAcquire)
			if !recovered(func() { l.Acquire(t.Context(), "order:1", core.Also("order:2")) }) {
				t.Error("test setup: got no panic")
			}
			time.Sleep(2 * time.Minute)
			if !isFree(store.inner, "order:1") || !isFree(store.inner, "order:2") {
				t.Errorf("%s: a key is held for ever", name)
			}
			if left := l.Left(); left != "" {
				t.Errorf("%s: left is %s", name, left)
			}
		}
	})
}
