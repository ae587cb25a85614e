package redlock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestNumberOfWaiters checks that a busy error contains about the number of waiters. A
// Locker asks less often if there are many.
func TestNumberOfWaiters(t *testing.T) {
	t.Parallel()
	_, connect := servers(t, 3)
	s := fit(t, newStore(t, connect(t), redlock.WithNodeTimeout(slow)))
	holder := claim("holder")
	holder.TTL = time.Minute
	acquireSoon(t, s, holder)
	start := time.Now()
	for n := range 30 {
		waiter := claim(fmt.Sprint("waiter", n))
		waiter.Wait = true
		var busy *store.BusyError
		testserver.Eventually(t, patience, "the key is busy", func() bool {
			_, err := s.Acquire(t.Context(), waiter)
			return errors.As(err, &busy)
		})
		// A node can be some requests behind the others, and the answer does not wait
		// for it. The first waiters are forgotten after ten seconds.
		few := n / 2
		if time.Since(start) > 5*time.Second {
			few = 0
		}
		if busy.Waiting < few || busy.Waiting > n+1 {
			t.Fatalf("after %d others: got %#v", n, busy)
		}
	}
}

// TestShortGrantsOfNodes checks short grants. A node may grant the key to a waiter in
// the step that frees the key, but only for a short time. A majority of such grants is
// not a lease for the claim's TTL.
func TestShortGrantsOfNodes(t *testing.T) {
	t.Parallel()
	_, connect := servers(t, 3)
	s := fit(t, newStore(t, connect(t), redlock.WithNodeTimeout(slow)))
	rival := fit(t, newStore(t, connect(t), redlock.WithNodeTimeout(slow)))
	for name, weight := range map[string]int64{"a reader": 1, "exclusive": store.All} {
		t.Run(name, func(t *testing.T) {
			holder, waiter := claim("holder"), claim("waiter")
			holder.Key, waiter.Key = "order:"+name, "order:"+name
			waiter.Wait, waiter.Weight, waiter.TTL = true, weight, 30*time.Second
			waiter.Push = true // as a core.Locker sets it
			acquireSoon(t, rival, holder)
			woken, err := s.Watch(t.Context(), waiter)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Acquire(t.Context(), waiter); !errors.Is(err, store.ErrBusy) {
				t.Fatalf("got %v, want busy", err)
			}
			if err := rival.Release(t.Context(), holder); err != nil {
				t.Fatal(err)
			}
			<-woken
			start := time.Now()
			g := acquireSoon(t, s, waiter)
			next := claim("next")
			next.Key = waiter.Key
			testserver.Eventually(t, 20*time.Second, "a moment has passed", func() bool {
				time.Sleep(50 * time.Millisecond)
				_, err := rival.Acquire(t.Context(), next)
				if took := time.Since(start); err == nil && took < g.Valid-time.Second {
					t.Fatalf("granted to another after %v, of %v", took, g.Valid)
				}
				return err == nil || time.Since(start) > 11*time.Second
			})
		})
	}
}
