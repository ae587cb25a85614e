package pipeline_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// behindProxy starts a server with a proxy, and returns the client of this name.
func behindProxy(t *testing.T, name string) (*testserver.Proxy, redis.UniversalClient) {
	t.Helper()
	if name == "three nodes" {
		return clusterBehindProxy(t)
	}
	proxy := testserver.NewRedisProxy(t, testserver.StartRedis(t).Addr)
	return proxy, testclient.Redis(t, proxy.Addr, func(o *redis.Options) {
		switch name {
		case "no context timeouts":
			o.ContextTimeoutEnabled = false
		case "few connections":
			o.MaxActiveConns = 10
		}
	})
}

func clusterBehindProxy(t *testing.T) (*testserver.Proxy, redis.UniversalClient) {
	t.Helper()
	server := testserver.StartRedis(t, "--cluster-enabled", "yes")
	server.AddSlots(0, 16383)
	testserver.Eventually(t, time.Minute, "all slots are served", func() bool {
		return strings.Contains(server.Do("CLUSTER", "INFO").(string), "cluster_state:ok")
	})
	proxy := testserver.NewRedisProxy(t, server.Addr)
	_, port, _ := strings.Cut(proxy.Addr, ":")
	server.Restart("--cluster-announce-port", port) // 6.2 ignores this setting in CONFIG SET
	testserver.Eventually(t, time.Minute, "all slots are served again", func() bool {
		return strings.Contains(server.Do("CLUSTER", "INFO").(string), "cluster_state:ok")
	})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{proxy.Addr}, PoolSize: 20, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = cluster.Close() })
	return proxy, cluster
}

// TestRefresh_SilentIdleConnections makes a load balancer forget all idle connections.
// A single late call is enough to notice that.
func TestRefresh_SilentIdleConnections(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"context timeouts", "no context timeouts", "few connections", "three nodes"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, client := behindProxy(t, name)
			master, ok := client.(*redis.Client)
			if !ok {
				testserver.Eventually(t, time.Minute, "the master is known", func() bool {
					var err error
					master, err = client.(*redis.ClusterClient).MasterForKey(t.Context(), newKey())
					return err == nil
				})
			}
			const idle = 8
			testclient.Idle(t, master, idle)
			last := 0
			for _, r := range proxy.Requests() {
				last = max(last, r.Link)
			}
			var calls, pings atomic.Int64
			proxy.OnRequest(func(r testserver.Request) testserver.Action {
				switch {
				case r.Link > last:
					return testserver.Pass
				case r.Name == "ping":
					pings.Add(1)
				default:
					calls.Add(1)
				}
				return testserver.DropRequest
			})
			p := newPipeline(t, client)
			for range idle {
				if _, err := take(t.Context(), p, newKey()); err != nil {
					testserver.Eventually(t, time.Minute, "the others are pinged", func() bool { return pings.Load() >= idle-1 })
				}
			}
			if got := calls.Load(); got != 1 {
				t.Errorf("got %d calls on silent connections, want 1", got)
			}
			testserver.Eventually(t, time.Minute, "a call is answered", func() bool {
				_, err := take(t.Context(), p, newKey())
				return err == nil
			})
		})
	}
}

// TestRefresh_SlowDial checks that a connection is opened even if each call is too
// short for a dial.
func TestRefresh_SlowDial(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"context timeouts", "no context timeouts", "few connections", "three nodes"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, client := behindProxy(t, name)
			p := newPipeline(t, client)
			// A call takes at most two round trips, and a new connection three more.
			const trip = 200 * time.Millisecond
			proxy.Delay(trip / 2)
			testserver.Eventually(t, time.Minute, "a call is answered", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 3*trip)
				defer cancel()
				_, err := take(ctx, p, newKey())
				return err == nil
			})
		})
	}
}
