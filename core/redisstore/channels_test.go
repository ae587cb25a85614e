package redisstore_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// slowClose makes the next Close of a connection hang until free is closed.
type slowClose struct {
	armed        atomic.Bool
	free, closed chan struct{}
}

func (s *slowClose) edit(o *redis.Options) {
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &slowConn{conn, s}, nil
	}
}

type slowConn struct {
	net.Conn
	of *slowClose
}

func (c *slowConn) Close() error {
	if c.of.armed.CompareAndSwap(true, false) {
		<-c.of.free
		defer close(c.of.closed)
	}
	return c.Conn.Close()
}

// TestRedissonChannels_LateClose opens a connection for wake-ups while the last one is
// still being closed. The late end of the last one must not affect the new one
// (hazard 39).
func TestRedissonChannels_LateClose(t *testing.T) {
	t.Parallel()
	proxy := testserver.NewRedisProxy(t, testserver.StartRedis(t).Addr)
	slow := &slowClose{free: make(chan struct{}), closed: make(chan struct{})}
	s := newStore(t, testclient.Redis(t, proxy.Addr, slow.edit), redisstore.WithRedisson())
	silent := proxy.Inject(testserver.Match{Command: "subscribe"}, testserver.DropRequest)
	slow.armed.Store(true)
	_, err := s.Watch(t.Context(), claimed())
	wantIs(t, "watch of a silent connection", err, store.ErrUnavailable)
	silent.Await(t)
	live := watch(t, s, claimed())
	close(slow.free)
	<-slow.closed
	for range 50 { // the end of the last connection comes soon after
		watch(t, s, claimed())
	}
	select {
	case <-live:
		t.Error("the watch of the new connection broke")
	default:
	}
}

// TestRedissonChannels_LateBegin delays the first step of a connection until the next one
// is live. The next one must stay in use (hazard 39).
func TestRedissonChannels_LateBegin(t *testing.T) {
	t.Parallel()
	s := newStore(t, testclient.Redis(t, testserver.StartRedis(t).Addr), redisstore.WithRedisson())
	live := watch(t, s, claimed())
	s.ListenLate()
	if _, err := s.Watch(t.Context(), claimed()); err != nil {
		t.Errorf("watch of the live connection: got %v, want none", err)
	}
	select {
	case <-live:
		t.Error("got that the watch of the live connection broke, want that it stays open")
	default:
	}
}

// TestRedissonChannels_ShortDeadline leaves a watch while its connection opens slowly.
// The connection must stay open for the other watches (hazard 39).
func TestRedissonChannels_ShortDeadline(t *testing.T) {
	t.Parallel()
	proxy := testserver.NewRedisProxy(t, testserver.StartRedis(t).Addr)
	s := newStore(t, testclient.Redis(t, proxy.Addr), redisstore.WithRedisson())
	acquire(t, s, claimed())
	for {
		held := proxy.Inject(testserver.Match{Command: "subscribe"}, testserver.HoldRequest)
		start, other := time.Now(), make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			_, err := s.Watch(ctx, claimed())
			other <- err
		}()
		held.Await(t)
		for range 10 {
			brief, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			_, err := s.Watch(brief, claimed())
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) && time.Since(start) < s.Limit() {
				t.Errorf("brief watch: got %v, want %v", err, context.DeadlineExceeded)
			}
		}
		held.Deliver()
		err := <-other
		if err != nil && time.Since(start) >= s.Limit() {
			continue // the machine was too busy
		}
		if err != nil {
			t.Errorf("patient watch: got %v, want none", err)
		}
		return
	}
}
