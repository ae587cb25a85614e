package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
)

// fallen is a node whose server is down. known is set if the client knows that the
// server is down.
type fallen struct {
	*memstore.Store
	known bool
	asked atomic.Int64
}

func (n *fallen) Error() string { return "connection refused" }

func (n *fallen) Down() bool { return n.known }

func (n *fallen) Acquire(context.Context, store.Claim) (store.Grant, error) {
	n.asked.Add(1)
	return store.Grant{}, fmt.Errorf("%w: %w", store.ErrUnavailable, n)
}

// TestKnownOutage checks that a Locker does not retry if the clients of too many nodes
// know that their servers are down. hazard 23
func TestKnownOutage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		known [2]bool // for the two nodes that are down; the third one answers
		asked int64
	}{{[2]bool{true, true}, 1}, {[2]bool{true, false}, 3}} {
		a, b := &fallen{Store: memstore.New(), known: c.known[0]}, &fallen{Store: memstore.New(), known: c.known[1]}
		s := newStore(t, []store.Store{a, b, memstore.New()}, redlock.WithNodeTimeout(slow))
		l, err := core.New(s)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err = l.Acquire(ctx, "order:1")
		cancel()
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		if n := a.asked.Load(); n != c.asked {
			t.Errorf("the outage of the two nodes is known: %v; the first was asked %d times, want %d", c.known, n, c.asked)
		}
	}
}
