package matrix_test

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// place is one kind of Redis for the locks, which all trials share.
type place struct {
	name    string
	version string
	nodes   []string // the servers that hold keys
	// redisson is set for the keys of WithRedisson. Such keys have no tombstones, no
	// records and no places of waiters.
	redisson bool
	// client returns a client of the place, which connects through the dialer if it is
	// not nil. If careful is true, the client stops a call when the call's context is
	// done, and does not repeat it. Otherwise it has go-redis's default options.
	client func(t *testing.T, careful bool, dial dialer) redis.UniversalClient
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// places starts one place of each kind. None fails over: other tests check failovers,
// and a busy machine must not cause a failover.
func places(t *testing.T) []place {
	single := testserver.StartRedis(t)
	sentinel := testserver.StartSentinel(t, "--replica-priority", "0")
	cluster := testserver.StartCluster(t, false, append(testserver.NoFailover,
		"--cluster-node-timeout", "60000", "--cluster-require-full-coverage", "no")...)
	all := []place{
		{
			name: "single", nodes: []string{single.Addr},
			client: func(t *testing.T, careful bool, dial dialer) redis.UniversalClient {
				return testclient.Redis(t, single.Addr, func(o *redis.Options) {
					o.Dialer = dial
					if !careful {
						o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = false, 0, 0
					}
				})
			},
		},
		{
			name: "sentinel", nodes: []string{sentinel.Master().Addr},
			client: func(t *testing.T, careful bool, dial dialer) redis.UniversalClient {
				return testclient.Sentinel(t, sentinel, func(o *redis.FailoverOptions) {
					o.Dialer = dial
					if careful {
						o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, -1, 1
					}
				})
			},
		},
		{
			name: "cluster", nodes: cluster.Addrs(),
			client: func(t *testing.T, careful bool, dial dialer) redis.UniversalClient {
				return testclient.Cluster(t, cluster, func(o *redis.ClusterOptions) {
					o.Dialer = dial
					if careful {
						o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, -1, 1
					}
				})
			},
		},
	}
	shared := all[0]
	shared.name, shared.redisson = "single with Redisson's keys", true
	all = append(all, shared)
	for i := range all {
		all[i].version = single.Field("server", "redis_version")
		all[i].warm(t)
	}
	return all
}

// warm makes every server load the scripts, so that each later call is one command.
func (p place) warm(t *testing.T) {
	t.Helper()
	l := p.locker(t, p.client(t, true, nil))
	for i := range 40 {
		lease, err := l.Acquire(t.Context(), fmt.Sprint("warm-up:", i))
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Extend(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// lacks reports whether the place's keys do not promise the outcome of a cell. With
// Redisson's keys an acquire that arrives after its own release holds the key, for at
// most one TTL (TestLateAcquire of package redisstore).
func (p place) lacks(op string, f fault) bool {
	switch op {
	case "record":
		return p.redisson
	case "acquire", "re-enter":
		return p.redisson && (f.when == beyond || f.when == overtaken)
	case "wait":
		return p.redisson && f.when == beyond
	}
	return false
}

// locker returns a Locker that is closed after the test. With Redisson's keys each lease
// also has a token.
func (p place) locker(t *testing.T, client redis.UniversalClient) *core.Locker {
	t.Helper()
	var keys []redisstore.Option
	var opts []core.Option
	if p.redisson {
		keys, opts = append(keys, redisstore.WithRedisson()), append(opts, core.WithDefaults(core.Fenced()))
	}
	store, err := redisstore.New(client, keys...)
	if err != nil {
		t.Fatal(err)
	}
	l, err := core.New(store, append(opts, core.WithObserver(core.Observers(nil)))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := l.Close(ctx); err != nil && !t.Failed() {
			t.Errorf("close: %v", err)
		}
		_ = store.Close()
	})
	return l
}
