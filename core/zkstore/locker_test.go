package zkstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestLocker(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	here := lockerOn(t, newStore(t, []string{server}))
	there := lockerOn(t, newStore(t, []string{server}))

	// Waiters of several processes get the key one after the other, in their order.
	t.Run("waiters of several processes", func(t *testing.T) {
		t.Parallel()
		const n = 6
		admin := testclient.ZooKeeper(t, session, server)
		holder := acquire(t, here, "order")
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range n {
			// Each waiter has its own Locker, because the callers of one Locker share a
			// place in the queue.
			l := lockerOn(t, newStore(t, []string{server}))
			wg.Go(func() {
				lease, err := l.Acquire(context.Background(), "order", core.Fair(), core.Wait(patience))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				if err := lease.Release(context.Background()); err != nil {
					t.Error(err)
				}
			})
			eventually(t, "it waits", func() bool { return len(places(t, admin, "order")) == i+2 })
		}
		release(t, holder)
		wg.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("got in as %v", order)
			}
		}
	})
	t.Run("readers and writers", func(t *testing.T) {
		t.Parallel()
		a, b := acquire(t, here, "shared", core.Shared()), acquire(t, there, "shared", core.Shared())
		if _, err := there.TryAcquire(t.Context(), "shared"); !errors.Is(err, store.ErrBusy) {
			t.Errorf("a writer beside readers: %v", err)
		}
		release(t, a)
		if _, err := here.TryAcquire(t.Context(), "shared"); !errors.Is(err, store.ErrBusy) {
			t.Errorf("a writer beside a reader: %v", err)
		}
		release(t, b)
		w := acquire(t, here, "shared")
		if _, err := there.TryAcquire(t.Context(), "shared", core.Shared()); !errors.Is(err, store.ErrBusy) {
			t.Errorf("a reader beside a writer: %v", err)
		}
		release(t, w)
	})
	t.Run("permits of a key", func(t *testing.T) {
		t.Parallel()
		a := acquire(t, here, "permits", core.Permits(2, 3))
		if _, err := there.TryAcquire(t.Context(), "permits", core.Permits(2, 3)); !errors.Is(err, store.ErrBusy) {
			t.Errorf("four of three: %v", err)
		}
		b := acquire(t, there, "permits", core.Permits(1, 3))
		release(t, a)
		release(t, b)
	})
	t.Run("re-entry and owners", func(t *testing.T) {
		t.Parallel()
		outer := acquire(t, here, "again")
		inner, err := here.Acquire(outer.Context(), "again")
		if err != nil {
			t.Fatal(err)
		}
		if inner.Token() != outer.Token() {
			t.Errorf("got token %d, want the outer %d", inner.Token(), outer.Token())
		}
		joined, err := there.Acquire(core.ContextWithOwner(context.Background(), outer.Owner()), "again", core.Wait(0))
		if err != nil {
			t.Fatal(err)
		}
		if joined.Token() != outer.Token() {
			t.Errorf("got token %d, want the outer %d", joined.Token(), outer.Token())
		}
		release(t, outer)
		release(t, inner)
		if _, err := here.TryAcquire(t.Context(), "again"); !errors.Is(err, store.ErrBusy) {
			t.Errorf("while the other process holds: %v", err)
		}
		release(t, joined)
		release(t, acquire(t, here, "again"))
	})
	// A renewed lease outlives its session's time-out and its TTL.
	t.Run("renewed lease", func(t *testing.T) {
		t.Parallel()
		// A busy machine has half of this TTL for an extension.
		const ttl = 3 * short
		s, _ := storeOn(t, ttl, []string{server})
		l := lockerOn(t, s)
		lease := acquire(t, l, "renewed", core.TTL(ttl))
		time.Sleep(ttl * 3 / 2)
		if err := lease.Context().Err(); err != nil {
			t.Fatalf("lost: %v", context.Cause(lease.Context()))
		}
		if _, err := there.TryAcquire(t.Context(), "renewed"); !errors.Is(err, store.ErrBusy) {
			t.Errorf("got %v, want %v", err, store.ErrBusy)
		}
		release(t, lease)
	})
	// A lease that is not renewed expires after its TTL, although its session is alive.
	t.Run("lease without renewal", func(t *testing.T) {
		t.Parallel()
		const ttl = 2 * time.Second
		start := time.Now()
		lease := acquire(t, here, "fixed", core.TTL(ttl), core.NoRenew())
		next := acquire(t, there, "fixed")
		if took := time.Since(start); took < ttl || took > session/2 {
			t.Errorf("free after %v, want its TTL of %v", took, ttl)
		}
		if !errors.Is(context.Cause(lease.Context()), store.ErrLost) {
			t.Errorf("the lease ended with %v", context.Cause(lease.Context()))
		}
		release(t, next)
	})
	// KeepFor keeps the key taken for a while, even if the Locker, the Store and the
	// connection are closed.
	t.Run("KeepFor after a release", func(t *testing.T) {
		t.Parallel()
		const keep = 3 * time.Second
		conn := testclient.ZooKeeper(t, session, server)
		s := newStoreOn(t, conn)
		l, err := core.New(s)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		release(t, acquire(t, l, "kept", core.KeepFor(keep)))
		_ = l.Close(t.Context())
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		next := acquire(t, there, "kept")
		if took := time.Since(start); took < keep-time.Millisecond {
			t.Errorf("free after %v, want %v", took, keep)
		}
		release(t, next)
	})
	t.Run("records are refused", func(t *testing.T) {
		t.Parallel()
		if _, err := once.New(here); !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("got %v, want %v", err, store.ErrUnsupported)
		}
	})
}
