package zkstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/zkstore"
)

func knownDown(err error) bool {
	return errors.Is(err, store.ErrUnavailable) && strings.Contains(err.Error(), "known to be down")
}

var errBroken = errors.New("broken connection")

// breakable is a connection whose writes can be made to fail.
type breakable struct {
	net.Conn
	broken *atomic.Bool
}

func (b *breakable) Write(p []byte) (int, error) {
	if b.broken.Load() {
		return 0, errBroken
	}
	return b.Conn.Write(p)
}

// TestOutage checks that acquires during an outage fail and send few requests, and that
// they work again after it (hazard 23).
func TestOutage(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	for name, c := range map[string]struct {
		down, up func(p *testserver.Proxy)
		says     string
	}{
		"connection closed": {(*testserver.Proxy).Down, (*testserver.Proxy).Up, "not connected"},
		"server silent":     {(*testserver.Proxy).Partition, (*testserver.Proxy).Heal, "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := testserver.NewZooKeeperProxy(t, server)
			s, _ := storeOn(t, session, []string{proxy.Addr})
			l := lockerOn(t, s)
			held := exclusive("outage:" + name)
			grant(t, s, held)
			briefly := func(call func(ctx context.Context) error) error {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				return call(ctx)
			}
			c.down(proxy)
			eventually(t, "the store knows that its server is down", func() bool {
				return knownDown(briefly(func(ctx context.Context) error {
					_, err := s.Acquire(ctx, exclusive("outage"))
					return err
				}))
			})
			proxy.Forget()
			start := time.Now()
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					_, err := l.Acquire(t.Context(), fmt.Sprint("outage:", i))
					if !knownDown(err) || !strings.Contains(err.Error(), c.says) && !strings.Contains(err.Error(), "not connected") {
						t.Errorf("got %v", err)
					}
				})
			}
			all.Wait()
			took := time.Since(start)
			syncs := proxy.Count(testserver.Match{Command: "sync"})
			t.Logf("100 callers: %v, %d requests", took, syncs)
			if n := len(proxy.Requests()); n > syncs || syncs > 1+int(took/time.Second) {
				t.Errorf("%v was sent for them", proxy.Requests())
			}
			// Extend and Release are tried even in an outage.
			if err := briefly(func(ctx context.Context) error { return s.Extend(ctx, []store.Claim{held})[0].Err }); err == nil || knownDown(err) {
				t.Errorf("extend: got %v", err)
			}
			if err := briefly(func(ctx context.Context) error { return s.Release(ctx, held) }); err == nil || knownDown(err) {
				t.Errorf("release: got %v", err)
			}
			c.up(proxy)
			start = time.Now()
			release(t, reacquire(t, l, "outage"))
			t.Logf("the first acquire: %v", time.Since(start))
		})
	}
	// One broken connection is not an outage.
	t.Run("one broken connection", func(t *testing.T) {
		t.Parallel()
		proxy := testserver.NewZooKeeperProxy(t, server)
		s, _ := storeOn(t, session, []string{proxy.Addr})
		l := lockerOn(t, s)
		for range 3 {
			release(t, acquire(t, l, "outage:once"))
			proxy.Sever()
		}
	})
	// A request that the client could not write has no answer.
	t.Run("probe that is not written", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var broken atomic.Bool
		conn, _, err := zk.Connect([]string{server}, session, zk.WithLogger(silent{}), zk.WithLogInfo(false),
			zk.WithDialer(func(network, addr string, limit time.Duration) (net.Conn, error) {
				if broken.Load() {
					cancel() // the client has noticed the loss
					return nil, errBroken
				}
				conn, err := net.DialTimeout(network, addr, limit)
				return &breakable{conn, &broken}, err
			}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		s := newStoreOn(t, conn)
		defer func() { _ = s.Close() }()
		eventually(t, "there is a session", func() bool { return conn.State() == zk.StateHasSession })
		broken.Store(true)
		if err := zkstore.Probe(s, ctx); err == nil {
			t.Error("got an answer, want none")
		}
	})
	// A caller that leaves does not mean an outage. One probe request shows that the
	// server is up.
	t.Run("caller that leaves", func(t *testing.T) {
		t.Parallel()
		proxy := testserver.NewZooKeeperProxy(t, server)
		s, _ := storeOn(t, session, []string{proxy.Addr})
		f := proxy.Inject(testserver.Match{Command: "multi"}, testserver.HoldRequest)
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			f.Await(t)
			leave()
		}()
		if _, err := s.Acquire(ctx, exclusive("outage:left")); err == nil || knownDown(err) {
			t.Errorf("got %v", err)
		}
		f.Deliver()
		grant(t, s, exclusive("outage:next"))
	})
}
