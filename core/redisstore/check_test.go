package redisstore_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// fit contains the settings that make a server fit.
var fit = []string{"--appendonly", "yes"}

func TestCheck(t *testing.T) {
	t.Parallel()
	says := func(t *testing.T, s *redisstore.Store, words ...string) {
		t.Helper()
		err := s.Check(t.Context())
		if err == nil {
			t.Fatal("the server was found fit")
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("got %q, want it to say %q", err, w)
			}
		}
	}
	t.Run("fit server", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t, fit...)
		for _, opts := range [][]redisstore.Option{nil, {redisstore.WithPlainKeys()}, {redisstore.WithPrefix("")}} {
			if err := newStore(t, testclient.Redis(t, server.Addr), opts...).Check(t.Context()); err != nil {
				t.Errorf("%d options: %v", len(opts), err)
			}
		}
		asks := testclient.Redis(t, server.Addr)
		testserver.Eventually(t, soon, "what it tried has expired", func() bool { return asks.DBSize(t.Context()).Val() == 0 })
	})
	t.Run("a replica", func(t *testing.T) {
		t.Parallel()
		says(t, newStore(t, testclient.Redis(t, replicaOf(t, testserver.StartRedis(t)).Addr)), "slave", "connect to the master")
	})
	t.Run("eviction of keys", func(t *testing.T) { // hazard 26
		t.Parallel()
		for _, policy := range []string{"volatile-ttl", "volatile-lru", "allkeys-lru", "allkeys-random"} {
			server := testserver.StartRedis(t, append(fit, "--maxmemory-policy", policy)...)
			says(t, newStore(t, testclient.Redis(t, server.Addr)), policy, "noeviction")
		}
	})
	t.Run("nothing is saved", func(t *testing.T) {
		t.Parallel()
		says(t, newStore(t, testclient.Redis(t, testserver.StartRedis(t).Addr)), "appendonly yes")
	})
	t.Run("saving fails", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t, "--save", "3600", "1", "--dbfilename", "dump")
		breakSaving(t, server)
		says(t, newStore(t, testclient.Redis(t, server.Addr)), "fails to save", "MISCONF")
	})
	t.Run("too few replicas", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t, fit...)
		says(t, newStore(t, testclient.Redis(t, server.Addr), redisstore.WithReplicas(2, 50*time.Millisecond)), "0 replicas are connected", "0 of 2 replicas")
	})
	t.Run("wrong clock", func(t *testing.T) { // hazard 21
		t.Parallel()
		clock := testserver.NewClock(t, 1)
		s := newStore(t, testclient.Redis(t, clock.StartRedis(fit...).Addr))
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("with a right clock: %v", err)
		}
		// On a busy machine the reported difference varies.
		becomes := func(what string) {
			t.Helper()
			testserver.Eventually(t, soon, what, func() bool {
				err := s.Check(t.Context())
				return err != nil && strings.Contains(err.Error(), what)
			})
		}
		clock.Step(40 * time.Second)
		becomes("40 s ahead of this machine's")
		clock.Step(-2 * time.Hour)
		becomes("1 hour 59 minutes 20 s behind this machine's")
	})
	t.Run("several faults at once", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t, "--maxmemory-policy", "allkeys-lru")
		says(t, newStore(t, testclient.Redis(t, server.Addr), redisstore.WithReplicas(1, 50*time.Millisecond)), "noeviction", "appendonly", "replicas")
	})
	t.Run("an old server", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t, fit...)
		client := testclient.Redis(t, server.Addr)
		client.AddHook(oldServer{})
		says(t, newStore(t, client), "6.0.20", "older than 6.2")
	})
	for name, c := range map[string]struct {
		config []string
		words  []string
	}{
		"a node of a cluster": {[]string{"--cluster-enabled", "yes"}, []string{"MOVED", "use a *redis.ClusterClient"}},
		"no replicas":         {[]string{"--min-replicas-to-write", "1"}, []string{"NOREPLICAS", "min-replicas-to-write"}},
		"a renamed evalsha":   {[]string{"--rename-command", "EVALSHA", "evalsha2"}, []string{"unknown command", "undo rename-command"}},
		"a renamed info":      {[]string{"--rename-command", "INFO", "info2"}, []string{"no INFO", "undo rename-command"}},
		"a full server":       {[]string{"--maxmemory", "1"}, []string{"OOM", "raise maxmemory"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t, append(fit, c.config...)...)
			if name == "a node of a cluster" {
				server.AddSlots(0, 0) // another node has all other slots
				other := testserver.StartRedis(t, c.config...)
				other.AddSlots(1, 16383)
				server.Do("CLUSTER", "MEET", "127.0.0.1", other.Port())
				testserver.Eventually(t, testserver.Settled, "the cluster is up", func() bool {
					return strings.Contains(server.Do("CLUSTER", "INFO").(string), "cluster_state:ok")
				})
			}
			s := newStore(t, testclient.Redis(t, server.Addr))
			says(t, s, c.words...)
			if err := s.Check(t.Context()); strings.Contains(err.Error(), "it needs the rights") {
				t.Errorf("got %q, want no list of rights", err)
			}
		})
	}
	t.Run("connections to several servers", func(t *testing.T) {
		t.Parallel()
		servers := []*testserver.Redis{testserver.StartRedis(t, fit...), testserver.StartRedis(t, fit...)}
		var dials atomic.Int64
		client := testclient.Redis(t, servers[0].Addr, func(o *redis.Options) {
			o.PoolSize = 1
			o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, servers[dials.Add(1)%2].Addr)
			}
		})
		says(t, newStore(t, client), "lead to several servers", "WithProxy")
		// Check can find another fault, because the wake-up can be sent to a server
		// without listeners.
		if err := newStore(t, client, redisstore.WithProxy()).Check(t.Context()); err != nil && strings.Contains(err.Error(), "lead to") {
			t.Errorf("with WithProxy: got %v, want nothing of that", err)
		}
	})
	// The race detector would find options that Check shares with the client.
	t.Run("client that is connecting", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t, fit...)
		for range 5 {
			s := newStore(t, testclient.Redis(t, server.Addr))
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), soon)
					defer cancel()
					if err := s.Check(ctx); err != nil {
						t.Errorf("got %v, want none", err)
					}
				})
			}
			wg.Wait()
		}
	})
	t.Run("dead or silent server", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		s := newStore(t, testclient.Redis(t, server.Addr))
		server.Pause()
		err := within(t, 100*time.Millisecond, s.Check)
		wantIs(t, "check", err, store.ErrUnavailable)
		server.Kill()
		wantIs(t, "check", s.Check(t.Context()), store.ErrUnavailable)
	})
}

// oldServer is a hook that makes INFO show an old version.
type oldServer struct{ hook }

func (oldServer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if info, ok := cmd.(*redis.StringCmd); ok && cmd.Name() == "info" {
			info.SetVal(strings.Replace(info.Val(), "redis_version:", "redis_version:6.0.20\r\nreal_version:", 1))
		}
		return err
	}
}
