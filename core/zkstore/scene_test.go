package zkstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/core/zkstore"
)

// patience limits the wait for an event that should come at once.
const patience = time.Minute

func storeOn(t testing.TB, session time.Duration, addrs []string, opts ...zkstore.Option) (*zkstore.Store, *zk.Conn) {
	t.Helper()
	conn := testclient.ZooKeeper(t, session, addrs...)
	s, err := zkstore.New(conn, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, conn
}

// lockerOn returns a Locker on s. The test's clean-up closes it before s.
func lockerOn(t testing.TB, s store.Store, opts ...core.Option) *core.Locker {
	t.Helper()
	l, err := core.New(s, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = l.Close(ctx)
	})
	return l
}

func acquire(t testing.TB, l *core.Locker, key string, opts ...core.AcquireOption) *core.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lease, err := l.Acquire(context.WithoutCancel(ctx), key, append(opts, core.Wait(patience))...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// reacquire acquires after an outage. The store is unavailable until its client has
// reconnected, so reacquire tries again until then.
func reacquire(t testing.TB, l *core.Locker, key string) *core.Lease {
	t.Helper()
	for stop := time.Now().Add(patience); ; {
		lease, err := l.Acquire(context.Background(), key, core.Wait(patience))
		if err == nil {
			return lease
		}
		if !errors.Is(err, store.ErrUnavailable) || time.Now().After(stop) {
			t.Fatal(err)
		}
	}
}

func release(t testing.TB, l *core.Lease) {
	t.Helper()
	if err := l.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func exclusive(key string) store.Claim {
	return store.Claim{
		Key: key, Owner: rand.Text(), Lease: rand.Text(),
		Weight: store.All, Limit: store.All, TTL: time.Minute,
	}
}

func waiting(key string) store.Claim {
	c := exclusive(key)
	c.Wait, c.Fair = true, true
	return c
}

func grant(t testing.TB, s store.Store, c store.Claim) store.Grant {
	t.Helper()
	g, err := s.Acquire(t.Context(), c)
	if err != nil {
		t.Fatalf("acquire: got %v, want a grant", err)
	}
	return g
}

func busy(t testing.TB, s store.Store, c store.Claim) {
	t.Helper()
	if _, err := s.Acquire(t.Context(), c); !errors.Is(err, store.ErrBusy) {
		t.Fatalf("acquire: got %v, want %v", err, store.ErrBusy)
	}
}

// children returns the names of the children of a key's node. The key needs no
// escaping.
func children(t testing.TB, conn *zk.Conn, key string) []string {
	t.Helper()
	dir := "/lk1/" + key
	if _, err := conn.Sync(dir); err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	names, _, err := conn.Children(dir)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	return names
}

// places returns the names of the children of a key's node, except tombstones.
func places(t testing.TB, conn *zk.Conn, key string) []string {
	t.Helper()
	return slices.DeleteFunc(children(t, conn, key), func(name string) bool { return strings.HasPrefix(name, "t.") })
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for stop := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(stop) {
			t.Fatalf("not so after %v: %s", patience, what)
		}
	}
}

// lostBy waits for the loss of a lease, and returns the time of the loss and the last
// deadline before it. The deadline of a lost lease is only some time in the past.
func lostBy(t testing.TB, l *core.Lease) (at, deadline time.Time) {
	t.Helper()
	deadline = l.Deadline()
	for stop := time.Now().Add(patience); l.Context().Err() == nil; time.Sleep(time.Millisecond) {
		if d := l.Deadline(); d.After(time.Now()) {
			deadline = d
		}
		if time.Now().After(stop) {
			t.Fatal("got no loss")
		}
	}
	at = time.Now()
	if err := context.Cause(l.Context()); !errors.Is(err, store.ErrLost) {
		t.Errorf("the lease ended with %v, want %v", err, store.ErrLost)
	}
	return at, deadline
}

func ops(requests []testserver.Request) []string {
	var some []string
	for _, r := range requests {
		some = append(some, r.Name)
	}
	return some
}

func sameOps(t testing.TB, what string, got []testserver.Request, want ...string) {
	t.Helper()
	if !slices.Equal(ops(got), want) {
		t.Errorf("%s: got requests %v, want %v", what, got, want)
	}
}

func newStoreOn(t testing.TB, conn *zk.Conn) *zkstore.Store {
	t.Helper()
	s, err := zkstore.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
