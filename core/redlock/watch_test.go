package redlock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
)

// TestWatch_Unsupported checks that Watch refuses at once if too few nodes can wake, and
// does not wait for them.
func TestWatch_Unsupported(t *testing.T) {
	t.Parallel()
	for name, able := range map[string]int{"no node": 0, "one of three": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var nodes []store.Store
				for i := range 3 {
					if m := memstore.New(); i < able {
						nodes = append(nodes, m)
					} else {
						nodes = append(nodes, struct{ store.Store }{m})
					}
				}
				s, begun := newStore(t, nodes), time.Now()
				if _, err := s.Watch(t.Context(), claim("ours")); !errors.Is(err, store.ErrUnsupported) || time.Since(begun) > 0 {
					t.Errorf("got %v after %v, want %v at once", err, time.Since(begun), store.ErrUnsupported)
				}
			})
		})
	}
}
