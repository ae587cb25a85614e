package zkstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// passes counts the leases that are passed on.
type passes struct{ n atomic.Int64 }

func (p *passes) Observe(_ context.Context, e core.Event) {
	if e.Kind == core.PassedOn {
		p.n.Add(1)
	}
}

// TestRequests counts the requests between the client and the server, for our locks and
// for the lock in the client library.
func TestRequests(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	proxy := testserver.NewZooKeeperProxy(t, server)
	s, conn := storeOn(t, session, []string{proxy.Addr})
	var passes passes
	locker := lockerOn(t, s, core.WithObserver(&passes))

	give := func(c store.Claim) {
		t.Helper()
		if err := s.Release(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("free lock", func(t *testing.T) {
		// The first round creates the key's node, and the server may remove the node
		// before the next round.
		for range 20 {
			proxy.Forget()
			c := exclusive("free")
			grant(t, s, c)
			give(c)
			if !slices.Contains(ops(proxy.Requests()), "createContainer") {
				break
			}
		}
		sameOps(t, "ours", proxy.Requests(), "multi", "delete")

		theirs := zk.NewLock(conn, "/theirs", zk.WorldACL(zk.PermAll))
		for range 2 {
			proxy.Forget()
			if err := theirs.Lock(); err != nil {
				t.Fatal(err)
			}
			if err := theirs.Unlock(); err != nil {
				t.Fatal(err)
			}
		}
		sameOps(t, "theirs", proxy.Requests(), "create", "getChildren", "delete")
	})
	t.Run("first lock of a key", func(t *testing.T) {
		proxy.Forget()
		c := exclusive("first")
		grant(t, s, c)
		give(c)
		sameOps(t, "ours", proxy.Requests(), "multi", "createContainer", "multi", "delete")
	})
	t.Run("busy key without waiting", func(t *testing.T) {
		holder := exclusive("refused")
		grant(t, s, holder)
		proxy.Forget()
		busy(t, s, exclusive("refused"))
		sameOps(t, "ours", proxy.Requests(), "multi", "getChildren", "getData", "multi")
		give(holder)
	})
	t.Run("nested lock", func(t *testing.T) {
		outer := exclusive("nested")
		grant(t, s, outer)
		proxy.Forget()
		inner := exclusive("nested")
		inner.Via = outer.Owner
		if g := grant(t, s, inner); g.Owner != outer.Owner {
			t.Errorf("granted to %q, want the outer owner", g.Owner)
		}
		give(inner)
		sameOps(t, "ours", proxy.Requests(), "multi", "delete")
		give(outer)
	})
	t.Run("hundred extensions", func(t *testing.T) {
		var claims []store.Claim
		for i := range 100 {
			c := exclusive(fmt.Sprintf("many:%d", i))
			grant(t, s, c)
			claims = append(claims, c)
		}
		proxy.Forget()
		for _, x := range s.Extend(t.Context(), claims) {
			if x.Err != nil {
				t.Error(x.Err)
			}
		}
		sameOps(t, "ours", proxy.Requests(), "multi")

		// After a lost reply, the first extension reads the versions of the nodes.
		proxy.Inject(testserver.Match{Command: "multi"}, testserver.CloseReply)
		if x := s.Extend(t.Context(), claims)[0]; x.Err == nil || errors.Is(x.Err, store.ErrLost) {
			t.Errorf("got %v, want an error that leaves the outcome open", x.Err)
		}
		for range 2 {
			proxy.Forget()
			for _, x := range s.Extend(t.Context(), claims) {
				if x.Err != nil {
					t.Error(x.Err)
				}
			}
		}
		sameOps(t, "ours after a lost reply", proxy.Requests(), "multi")
		proxy.Forget()
		give(claims[0])
		sameOps(t, "release after a lost reply", proxy.Requests(), "delete")
	})
	// If goroutines wait for the same key, a lease that is passed on costs at most two
	// requests. A busy machine passes fewer leases on, because a hold is passed on for
	// 10 ms only.
	t.Run("passed on among goroutines", func(t *testing.T) {
		const workers, rounds = 8, 5
		each := func(lock func() error, unlock func() error) {
			for range rounds {
				if err := lock(); err != nil {
					t.Error(err)
					return
				}
				if err := unlock(); err != nil {
					t.Error(err)
				}
			}
		}
		crowd := func(worker func()) int {
			proxy.Forget()
			var wg sync.WaitGroup
			for range workers {
				wg.Go(worker)
			}
			wg.Wait()
			return len(proxy.Requests())
		}
		release(t, acquire(t, locker, "crowd"))
		passes.n.Store(0)
		ours := crowd(func() {
			var lease *core.Lease
			each(func() (err error) {
				lease, err = locker.Acquire(context.Background(), "crowd")
				return err
			}, func() error { return lease.Release(context.Background()) })
		})
		theirs := crowd(func() {
			l := zk.NewLock(conn, "/theirs", zk.WorldACL(zk.PermAll))
			each(l.Lock, l.Unlock)
		})
		const cycles = workers * rounds
		passed := int(passes.n.Load())
		t.Logf("%d cycles, %d passed on: %d requests, and %d of the library's own lock", cycles, passed, ours, theirs)
		if passed == 0 || ours > 2*passed+7*(cycles-passed) {
			t.Errorf("%d cycles, %d passed on, took %d requests, want two for each that is passed on and seven for any other", cycles, passed, ours)
		}
	})
	t.Run("passed on between processes", func(t *testing.T) {
		other := testserver.NewZooKeeperProxy(t, server)
		second, theirConn := storeOn(t, session, []string{other.Addr})
		holder, w := exclusive("passed"), waiting("passed")
		grant(t, s, holder)
		// A Locker makes the same calls: it sends the claim, opens a watch, and sends
		// the claim again.
		busy(t, second, w)
		woken, err := second.Watch(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		busy(t, second, w)
		give(holder)
		select {
		case <-woken:
		case <-time.After(patience):
			t.Fatal("was not woken")
		}
		grant(t, second, w)
		if err := second.Release(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		sameOps(t, "ours", other.Requests(),
			"multi", "getChildren", "getChildren", // its node, the queue, the watch
			"getChildren",           // the queue again, with the watch
			"getChildren", "delete") // after the wake-up, and the release
		if other.Events() != 1 {
			t.Errorf("got %d events, want 1", other.Events())
		}

		other.Forget()
		ours, theirs := zk.NewLock(conn, "/theirs", zk.WorldACL(zk.PermAll)), zk.NewLock(theirConn, "/theirs", zk.WorldACL(zk.PermAll))
		if err := ours.Lock(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- theirs.Lock() }()
		eventually(t, "the rival waits", func() bool { return len(other.Requests()) >= 3 })
		if err := ours.Unlock(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := theirs.Unlock(); err != nil {
			t.Fatal(err)
		}
		sameOps(t, "theirs", other.Requests(), "create", "getChildren", "getData", "getChildren", "delete")
	})
}

// TestHerd checks that a release wakes only the next of many waiters. The test is not
// parallel to others, because on a busy machine a place in the queue could expire.
func TestHerd(t *testing.T) {
	waiters := tally.AllTrials(200)
	server := testserver.SharedZooKeeper(t)
	proxy := testserver.NewZooKeeperProxy(t, server)
	var stores []store.Store
	for range 4 {
		s, _ := storeOn(t, session, []string{proxy.Addr})
		stores = append(stores, s)
	}
	holder := exclusive("herd")
	grant(t, stores[0], holder)
	type waiter struct {
		store store.Store
		claim store.Claim
		woken <-chan struct{}
	}
	var line []waiter
	stay := func(line []waiter) {
		var wg sync.WaitGroup
		for _, w := range line {
			wg.Go(func() {
				if _, err := w.store.Acquire(t.Context(), w.claim); !errors.Is(err, store.ErrBusy) {
					t.Errorf("got %v, want %v", err, store.ErrBusy)
				}
			})
		}
		wg.Wait()
	}
	for i := range waiters {
		if i%50 == 0 {
			stay(line)
		}
		w := waiter{store: stores[i%len(stores)], claim: waiting("herd")}
		busy(t, w.store, w.claim)
		woken, err := w.store.(store.Watcher).Watch(t.Context(), w.claim)
		if err != nil {
			t.Fatal(err)
		}
		w.woken = woken
		line = append(line, w)
	}
	proxy.Forget()
	store, last := stores[0], holder
	for i, w := range line {
		if err := store.Release(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		select {
		case <-w.woken:
		case <-time.After(patience):
			t.Fatalf("waiter %d was not woken", i)
		}
		// A place lasts ten seconds. Waiters ask from time to time, which renews their
		// places.
		if i%50 == 0 {
			stay(line[i+1:])
		}
		grant(t, w.store, w.claim)
		store, last = w.store, w.claim
	}
	if n := proxy.Events(); n != waiters {
		t.Errorf("%d releases made the server wake %d waiters, want one each", waiters, n)
	}
	for _, w := range line {
		if len(w.woken) != 0 {
			t.Error("a waiter was woken twice")
		}
	}
}
