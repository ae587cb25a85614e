package redisstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/fresh"
	"github.com/lockkit/lockkit/core/internal/outage"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

var infoCommand = testserver.Match{Command: "info"}

func nodeBehind(t *testing.T) (*testserver.Redis, *testserver.Proxy, *redisstore.Store) {
	t.Helper()
	server := testserver.StartRedis(t)
	p := testserver.NewRedisProxy(t, server.Addr)
	s, err := redisstore.New(testclient.Redis(t, p.Addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return server, p, s
}

func nodeOf(t *testing.T, s *redisstore.Store) store.NodeInfo {
	t.Helper()
	info, err := s.Node(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// TestNode_AskedOnce makes many concurrent calls of Node. They must not flood
// the server with INFO.
func TestNode_AskedOnce(t *testing.T) {
	t.Parallel()
	_, p, s := nodeBehind(t)
	held := p.Inject(infoCommand, testserver.HoldReply)
	const n = 40
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if _, err := s.Node(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	held.Await(t)
	held.Deliver()
	all.Wait()
	// The first INFO opens a connection, so the callers ask once more. Later no INFO is
	// sent.
	if asked := p.Count(infoCommand); asked > 3 {
		t.Errorf("the server was asked %d times by %d callers", asked, n)
	}
	nodeOf(t, s)
	asked := p.Count(infoCommand)
	for range n {
		nodeOf(t, s)
	}
	if again := p.Count(infoCommand) - asked; again != 0 {
		t.Errorf("the server was asked %d times more without a new connection", again)
	}
}

// TestNode_SlowAnswer delays an INFO on its way to the server. The age that Node then
// remembers must not contain the delay.
func TestNode_SlowAnswer(t *testing.T) {
	t.Parallel()
	_, p, s := nodeBehind(t)
	nodeOf(t, s)
	nodeOf(t, s) // remembered, because no connection was opened
	held := p.Inject(infoCommand, testserver.HoldRequest)
	type answer struct {
		info store.NodeInfo
		err  error
	}
	first := make(chan answer, 1)
	go func() {
		info, err := s.Node(fresh.With(t.Context()))
		first <- answer{info, err}
	}()
	held.Await(t)
	time.Sleep(time.Second)
	delivered := time.Now()
	held.Deliver()
	a := <-first
	if a.err != nil {
		t.Skipf("the machine is too busy: %v", a.err)
	}
	if grown, passed := nodeOf(t, s).Age-a.info.Age, time.Since(delivered); grown > passed {
		t.Errorf("the age has grown by %v within %v", grown, passed)
	}
}

// TestNode_RenamedInfo asks a server on which INFO has another name.
func TestNode_RenamedInfo(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, "--rename-command", "INFO", "other")
	s, err := redisstore.New(testclient.Redis(t, server.Addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.Node(t.Context()); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("got %v, want %v", err, store.ErrUnsupported)
	}
}

func TestNode_Restart(t *testing.T) {
	t.Parallel()
	server, p, s := nodeBehind(t)
	before := nodeOf(t, s)
	server.RestartEmpty()
	p.Sever()
	if _, err := s.Acquire(t.Context(), store.Claim{
		Key: "order:1", Owner: "o", Lease: "l", Weight: store.All, Limit: store.All, TTL: time.Minute,
	}); err != nil && !errors.Is(err, store.ErrUnavailable) {
		t.Logf("a connection was lost: %v", err)
	}
	testserver.Eventually(t, 20*time.Second, "another life of the server", func() bool {
		after, err := s.Node(t.Context())
		return err == nil && after.ID != before.ID
	})
}

// refusing is a hook whose client opens no connections while it is on.
type refusing struct {
	pipeline.Dials
	on atomic.Bool
}

func (r *refusing) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if r.on.Load() {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection refused")}
		}
		return next(ctx, network, addr)
	}
}

// TestNode_RestartDuringOutage restarts a server after an outage. The user's client opens
// no connection, so the first grants arrive on a connection that the Store has opened
// itself. After each grant, Node must describe the restarted server.
func TestNode_RestartDuringOutage(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 2, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	var r refusing
	client.AddHook(&r)
	s, err := redisstore.New(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	acquire := func() error {
		_, err := s.Acquire(t.Context(), store.Claim{
			Key: rand.Text(), Owner: "o", Lease: "l", Weight: store.All, Limit: store.All, TTL: time.Minute,
		})
		return err
	}
	for range 5 {
		if err := acquire(); err != nil {
			t.Fatal(err)
		}
		before := nodeOf(t, s)
		r.on.Store(true)
		server.Kill()
		testserver.Eventually(t, time.Minute, "the server is known to be down", func() bool {
			return outage.Known(acquire())
		})
		server.RestartEmpty()
		testserver.Eventually(t, time.Minute, "a claim is granted", func() bool { return acquire() == nil })
		after, err := s.Node(t.Context())
		if err != nil && !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
		if err == nil && after.ID == before.ID {
			t.Fatal("after a grant of the restarted server, Node describes the server before the restart")
		}
		r.on.Store(false)
		testserver.Eventually(t, time.Minute, "the client works again", func() bool { return client.Ping(t.Context()).Err() == nil })
	}
}

// diallingHook dials itself, so hooks that are added later are not called.
type diallingHook struct{ pipeline.Dials }

func (*diallingHook) DialHook(redis.DialHook) redis.DialHook {
	return func(_ context.Context, network, addr string) (net.Conn, error) { return net.Dial(network, addr) }
}

// TestNode_UncountedConnections restarts a server whose client does not call the Store's
// hook.
func TestNode_UncountedConnections(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(c *redis.Client) *redis.Client{
		"client with time-out": func(c *redis.Client) *redis.Client { return c.WithTimeout(time.Second) },
		"hook that dials": func(c *redis.Client) *redis.Client {
			c.AddHook(new(diallingHook))
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t)
			s, err := redisstore.New(of(testclient.Redis(t, server.Addr)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			before := nodeOf(t, s)
			server.RestartEmpty()
			testserver.Eventually(t, time.Minute, "a claim is granted", func() bool {
				_, err := s.Acquire(t.Context(), store.Claim{
					Key: "order:1", Owner: "o", Lease: "l", Weight: store.All, Limit: store.All, TTL: time.Minute,
				})
				return err == nil
			})
			if after, err := s.Node(t.Context()); err == nil && after.ID == before.ID {
				t.Error("after a grant of the restarted server, Node describes the server before the restart")
			} else if err != nil && !errors.Is(err, store.ErrUnavailable) {
				t.Error(err)
			}
		})
	}
}

// TestNode_CallerLeaves makes a caller leave while its inquiry is in flight. Another
// caller that waits for the answer must then ask itself.
func TestNode_CallerLeaves(t *testing.T) {
	t.Parallel()
	_, p, s := nodeBehind(t)
	held := p.Inject(infoCommand, testserver.DropRequest)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	gone := make(chan error, 1)
	go func() {
		_, err := s.Node(ctx)
		gone <- err
	}()
	held.Await(t)
	got := make(chan error, 1)
	go func() {
		_, err := s.Node(t.Context())
		got <- err
	}()
	leave()
	if err := <-gone; !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the caller that left got %v, want %v", err, store.ErrUnavailable)
	}
	if err := <-got; err != nil {
		t.Errorf("the caller that stayed got %v", err)
	}
}
