package redisstore_test

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

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// dialed counts a client's attempts to connect, and the maximum number of concurrent
// attempts.
type dialed struct{ all, now, most atomic.Int64 }

func (d *dialed) edit(o *redis.Options) {
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = false, 0, 0 // go-redis' own defaults
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		d.all.Add(1)
		if n := d.now.Add(1); n > d.most.Load() {
			d.most.Store(n)
		}
		defer d.now.Add(-1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
}

func learn(t *testing.T, s store.Store) {
	t.Helper()
	testserver.Eventually(t, soon, "the store knows that its server is down", func() bool {
		_, err := s.Acquire(t.Context(), claimed())
		if err == nil {
			t.Fatal("an acquire was granted")
		}
		return knownDown(err)
	})
}

func knownDown(err error) bool {
	return errors.Is(err, store.ErrUnavailable) && strings.Contains(err.Error(), "known to be down")
}

// closing returns a Locker that is closed after the test. Closing waits for all
// clean-ups, so the server must be back before.
func closing(t *testing.T, s store.Store) *core.Locker {
	t.Helper()
	l, err := core.New(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return l
}

// refuseCrowd makes a hundred callers acquire different keys while the server is down,
// and returns the time that this took.
func refuseCrowd(t *testing.T, s store.Store) time.Duration {
	t.Helper()
	l := closing(t, s)
	var all sync.WaitGroup
	var longest atomic.Int64
	start := time.Now()
	for i := range 100 {
		all.Go(func() {
			start := time.Now()
			_, err := l.Acquire(t.Context(), fmt.Sprint("order:", i))
			if !knownDown(err) {
				t.Errorf("got %v", err)
			}
			for took := time.Since(start).Microseconds(); ; {
				if most := longest.Load(); took <= most || longest.CompareAndSwap(most, took) {
					return
				}
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	t.Logf("100 callers: %v, the longest %v", took, time.Duration(longest.Load())*time.Microsecond)
	return took
}

// probes returns the maximum number of probes in d, if each begins at least pace after
// the last probe. At most d/pace + 1 probes begin in d, and one more probe can have
// begun before.
func probes(d, pace time.Duration) int64 { return int64(d/pace) + 2 }

// back repeats an acquire until it is granted. Before a probe is answered, acquires
// fail because the server is known to be down. Old errors of the client's pool must not
// fail an acquire.
func back(t *testing.T, s store.Store) {
	t.Helper()
	start := time.Now()
	testserver.Eventually(t, soon, "an acquire is granted", func() bool {
		_, err := s.Acquire(t.Context(), claimed())
		if err != nil && !knownDown(err) && !late(err) {
			t.Fatalf("got %v after %v", err, time.Since(start))
		}
		return err == nil
	})
	t.Logf("the first acquire: %v", time.Since(start))
}

// TestOutage takes servers down in several ways (hazard 23). While the outage is known,
// acquires are refused without a request. After the outage they are granted again.
func TestOutage(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]redisstore.Option{"hash": nil, "plain": {redisstore.WithPlainKeys()}, "redisson": {redisstore.WithRedisson()}} {
		t.Run(name+" connections are refused", func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t)
			var d dialed
			s := newStore(t, testclient.Redis(t, server.Addr, d.edit), opts...)
			held := claimed()
			acquire(t, s, held)
			server.Kill()
			learn(t, s)
			before := d.all.Load()
			d.most.Store(0)
			took := refuseCrowd(t, s)
			if n, most := d.all.Load()-before, d.most.Load(); n > probes(took, 20*time.Millisecond) || most > 1 {
				t.Errorf("%d probes in %v, %d at once", n, took, most)
			}
			// Release and Extend are always sent.
			before = d.all.Load()
			if err := s.Release(t.Context(), held); err == nil || knownDown(err) || !strings.Contains(err.Error(), "refused") {
				t.Errorf("release: got %v", err)
			}
			if err := s.Extend(t.Context(), []store.Claim{held})[0].Err; err == nil || knownDown(err) || !strings.Contains(err.Error(), "refused") {
				t.Errorf("extend: got %v", err)
			}
			if d.all.Load()-before < 2 {
				t.Error("a release or an extend was refused")
			}
			for range 2 * 16 { // more failed dials than a pool tolerates
				_, _ = s.Acquire(t.Context(), claimed())
			}
			server.Restart()
			back(t, s)
		})
	}
	t.Run("pool that gave up dialing", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		var d dialed
		client := testclient.Redis(t, server.Addr, d.edit, func(o *redis.Options) { o.PoolSize = 2 })
		s := newStore(t, client)
		server.Kill()
		for range 4 {
			_ = client.Ping(t.Context()).Err()
		}
		learn(t, s)
		server.Restart()
		back(t, s)
		c := claimed()
		acquire(t, s, c) // while the client's pool may still refuse to dial
		if err := extend(s, c); err != nil {
			t.Error(err)
		}
		release(t, s, c)
	})
	t.Run("error names the refused connection", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		server.Kill()
		for ttl, limit := range map[time.Duration]time.Duration{100 * time.Millisecond: time.Minute, 30 * time.Second: 60 * time.Millisecond} {
			var d dialed
			l, err := core.New(newStore(t, testclient.Redis(t, server.Addr, d.edit)))
			if err != nil {
				t.Fatal(err)
			}
			// On a busy machine the error can be late.
			testserver.Eventually(t, soon, "the error says it", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				_, err := l.Acquire(ctx, "order:1", core.TTL(ttl))
				if !errors.Is(err, store.ErrUnavailable) {
					t.Fatalf("TTL %v: got %v", ttl, err)
				}
				return strings.Contains(err.Error(), "connection refused")
			})
		}
	})
	t.Run("silent server", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		var d dialed
		s := newStore(t, testclient.Redis(t, server.Addr, d.edit))
		acquire(t, s, claimed())
		server.Pause()
		defer server.Resume()
		learn(t, s)
		before := d.all.Load()
		took := refuseCrowd(t, s)
		if n := d.all.Load() - before; n > probes(took, s.Limit()) {
			t.Errorf("%d probes in %v", n, took)
		}
		server.Resume()
		back(t, s)
	})
	t.Run("impatient callers only cause probes", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		var d dialed
		s := newStore(t, testclient.Redis(t, server.Addr, d.edit))
		acquire(t, s, claimed())
		server.Pause()
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			_, err := s.Acquire(ctx, claimed())
			cancel()
			if err == nil || knownDown(err) {
				t.Errorf("got %v", err)
			}
		}
		server.Resume()
	})
	t.Run("connections are closed at once", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		proxy := testserver.NewRedisProxy(t, server.Addr)
		s := newStore(t, testclient.Redis(t, proxy.Addr, new(dialed).edit))
		acquire(t, s, claimed())
		f := proxy.Inject(testserver.Match{Times: -1}, testserver.CloseRequest)
		learn(t, s)
		f.Await(t)
		before := proxy.Count(testserver.Match{})
		refuseCrowd(t, s)
		if n := proxy.Count(testserver.Match{}) - before; n > 100 {
			t.Errorf("%d requests for 100 callers", n)
		}
		proxy.Remove(f)
	})
	t.Run("missing replicas", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		replicaOf(t, server)
		var d dialed
		s := newStore(t, testclient.Redis(t, server.Addr, d.edit), redisstore.WithReplicas(1, time.Second))
		var held store.Claim
		testserver.Eventually(t, soon, "the replica has a grant", func() bool {
			held = claimed()
			_, err := s.Acquire(t.Context(), held)
			return err == nil
		})
		server.Kill()
		learn(t, s)
		before := d.all.Load()
		took := refuseCrowd(t, s)
		if n := d.all.Load() - before; n > probes(took, 20*time.Millisecond) {
			t.Errorf("%d probes in %v", n, took)
		}
		if err := s.Release(t.Context(), held); err == nil || knownDown(err) {
			t.Errorf("release: got %v", err)
		}
		server.Restart()
		testserver.Eventually(t, soon, "an acquire is granted", func() bool {
			_, err := s.Acquire(t.Context(), claimed())
			return err == nil
		})
	})
	for name, opts := range map[string][]redisstore.Option{"hash": nil, "redisson": {redisstore.WithRedisson()}} {
		t.Run("waiters during and after outage "+name, func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t)
			asks := testclient.Redis(t, server.Addr)
			holder := closing(t, newStore(t, testclient.Redis(t, server.Addr), opts...))
			lease, err := holder.Acquire(t.Context(), "order:1")
			if err != nil {
				t.Fatal(err)
			}
			l := closing(t, newStore(t, testclient.Redis(t, server.Addr), opts...))
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					if _, err := l.Acquire(t.Context(), "order:1", core.Wait(10*time.Minute)); !errors.Is(err, store.ErrUnavailable) {
						t.Errorf("got %v", err)
					}
				})
			}
			testserver.Eventually(t, soon, "the first of them is known to the server", func() bool {
				return len(asks.PubSubChannels(t.Context(), "*").Val()) > 0
			})
			server.Kill()
			all.Wait()
			if err := lease.Release(t.Context()); !errors.Is(err, store.ErrUnavailable) || knownDown(err) {
				t.Errorf("release: got %v", err)
			}
			server.Restart() // which has forgotten the holder
			testserver.Eventually(t, soon, "an acquire is granted", func() bool {
				last, err := l.Acquire(t.Context(), "order:1", core.Wait(10*time.Minute))
				return err == nil && last.Release(t.Context()) == nil
			})
		})
	}
	t.Run("timed-out calls name the cause", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		var hangs atomic.Bool
		over, end := context.WithCancel(context.Background())
		t.Cleanup(end)
		s := newStore(t, testclient.Redis(t, server.Addr, new(dialed).edit, func(o *redis.Options) {
			dial := o.Dialer
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if hangs.Load() {
					<-over.Done()
					return nil, context.Canceled
				}
				return dial(ctx, network, addr)
			}
		}))
		held := claimed()
		acquire(t, s, held)
		server.Kill()
		learn(t, s)
		hangs.Store(true)
		for op, call := range map[string]func(ctx context.Context) error{
			"release": func(ctx context.Context) error { return s.Release(ctx, held) },
			"extend":  func(ctx context.Context) error { return s.Extend(ctx, []store.Claim{held})[0].Err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "refused") {
				t.Errorf("%s: got %v, want the end of the context and the refused connection", op, err)
			}
			cancel()
		}
	})
	for name, down := range map[string]func(*testserver.Redis){"dead": (*testserver.Redis).Kill, "silent": (*testserver.Redis).Pause} {
		t.Run("a "+name+" node of a Cluster", func(t *testing.T) { clusterOutage(t, down) })
	}
}

// clusterOutage takes down one node of a Cluster. The keys of other nodes are not
// affected.
func clusterOutage(t *testing.T, down func(*testserver.Redis)) {
	t.Parallel()
	cluster := testserver.StartCluster(t, false, "--cluster-require-full-coverage", "no")
	s := newStore(t, testclient.Cluster(t, cluster, func(o *redis.ClusterOptions) { o.DialerRetries = 0 }))
	dead, dies := "", cluster.Nodes[0]
	var others []store.Claim
	serves := cluster.Serves(dies)
	for range 60 {
		c := claimed()
		acquire(t, s, c)
		release(t, s, c)
		if serves(testserver.Slot(stored(c))) {
			dead = c.Key
		} else {
			others = append(others, c)
		}
	}
	down(dies)
	testserver.Eventually(t, testserver.Settled, "the store knows that the node is down", func() bool {
		_, err := s.Acquire(t.Context(), claimOf(dead))
		return knownDown(err)
	})
	var all sync.WaitGroup
	for _, c := range others {
		all.Go(func() {
			g := claimOf(c.Key)
			if _, err := asked(func() (store.Grant, error) { return s.Acquire(t.Context(), g) }); err != nil {
				t.Errorf("another node's key: %v", err)
			}
			if _, err := s.Acquire(t.Context(), claimOf(dead)); err == nil {
				t.Error("the dead node's key was granted")
			}
		})
	}
	all.Wait()
}

// TestOutage_NoLookups checks that probes of an outage look up no names, except through
// the dialer. A lookup could take as long as a DNS server is silent. The test replaces
// the resolver of the process.
func TestOutage_NoLookups(t *testing.T) {
	server := testserver.StartRedis(t)
	var dials, lookups atomic.Int64
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		lookups.Add(1)
		return nil, errors.New("no DNS server")
	}}
	defer func() { net.DefaultResolver = before }()
	s := newStore(t, testclient.Redis(t, "redis.test:6379", func(o *redis.Options) {
		o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = false, 0, 0
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			dials.Add(1)
			return new(net.Dialer).DialContext(ctx, network, server.Addr)
		}
	}))
	acquire(t, s, claimed())
	named := lookups.Load()
	server.Kill()
	learn(t, s)
	dialed := dials.Load()
	testserver.Eventually(t, soon, "probes have dialed", func() bool {
		_, _ = s.Acquire(t.Context(), claimed())
		return dials.Load() >= dialed+3
	})
	if n := lookups.Load(); named == 0 || n != named {
		t.Errorf("got %d lookups, want the %d of the client itself", n, named)
	}
}
