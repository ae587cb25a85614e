package pgstore_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// forget drops all further requests on the existing connections of a proxy, which stay
// open. New connections work. It returns the number of the last connection that is
// forgotten.
func forget(proxy *testserver.Proxy) (last int) {
	for _, r := range proxy.Requests() {
		last = max(last, r.Link)
	}
	proxy.OnRequest(func(r testserver.Request) testserver.Action {
		if r.Link <= last {
			return testserver.DropRequest
		}
		return testserver.Pass
	})
	return last
}

// TestSilentConnections limits the failures, statements and pings on connections that
// fell silent (hazard 23).
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	server := database(t)
	const size = 4
	for _, c := range []struct {
		name       string
		idle       time.Duration // the minimum time for which the connections are idle
		budget     time.Duration
		failures   int
		statements int // on silent connections
	}{
		// After the ping of a silent connection, a call has less time for a new
		// connection. On a busy machine that may be too short.
		{"idle connections", 1100 * time.Millisecond, patience, 1, 0},
		{"idle with short calls", 1100 * time.Millisecond, 500 * time.Millisecond, 2, 0},
		{"used just before", 0, patience, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			proxy := testserver.NewPostgresProxy(t, server.Addr)
			pool := testclient.Postgres(t, server.URLAt(proxy.Addr, "pool_max_conns=4"))
			s := newStore(t, pool)
			fill(t, pool, size)
			time.Sleep(c.idle) // pgxpool pings connections that were idle for a second
			last := forget(proxy)
			proxy.Forget()
			failures := 0
			for range 2 * size {
				ctx, cancel := context.WithTimeout(t.Context(), c.budget)
				if _, err := s.Acquire(ctx, claimed()); err != nil {
					t.Logf("acquire: %v", err)
					failures++
				}
				cancel()
			}
			if failures > c.failures {
				t.Errorf("got %d failures, want at most %d", failures, c.failures)
			}
			// Each statement or ping without an answer makes a call late. After the
			// first late call, each other connection gets one ping, for which no call
			// waits.
			statements, pings := 0, make(map[int]int)
			for _, r := range proxy.Requests() {
				switch {
				case r.Link > last:
				case len(r.Args) > 0 && strings.Contains(r.Args[0], "-- ping"):
					pings[r.Link]++
				default:
					statements++
				}
			}
			if statements > c.statements {
				t.Errorf("got %d statements on silent connections, want at most %d", statements, c.statements)
			}
			for link, n := range pings {
				if n > 1 {
					t.Errorf("connection %d: got %d pings without an answer, want at most 1", link, n)
				}
			}
		})
	}
	t.Run("idle with several callers", func(t *testing.T) {
		t.Parallel()
		proxy := testserver.NewPostgresProxy(t, server.Addr)
		pool := testclient.Postgres(t, server.URLAt(proxy.Addr, "pool_max_conns=8"))
		s := newStore(t, pool)
		fill(t, pool, size)
		time.Sleep(1100 * time.Millisecond)
		forget(proxy)
		var all sync.WaitGroup
		var failures atomic.Int32
		for range size {
			all.Go(func() {
				if _, err := s.Acquire(t.Context(), claimed()); err != nil {
					t.Logf("acquire: %v", err)
					failures.Add(1)
				}
			})
		}
		all.Wait()
		// As above, for each caller.
		if n := failures.Load(); n > size/2 {
			t.Errorf("got %d failures, want at most %d", n, size/2)
		}
	})
	t.Run("others that answer stay", func(t *testing.T) {
		t.Parallel()
		proxy := testserver.NewPostgresProxy(t, server.Addr)
		pool := testclient.Postgres(t, server.URLAt(proxy.Addr, "pool_max_conns=8"))
		s := newStore(t, pool)
		fill(t, pool, size)
		before := idlePIDs(pool)
		time.Sleep(1100 * time.Millisecond)
		lost := proxy.Inject(testserver.Statement("ping"), testserver.DropRequest)
		if _, err := s.Acquire(t.Context(), claimed()); err != nil {
			t.Logf("acquire: %v", err)
		}
		lost.Await(t)
		testserver.Eventually(t, patience, "some of the others are idle again", func() bool {
			for pid := range idlePIDs(pool) {
				if before[pid] {
					return true
				}
			}
			return false
		})
	})
}

func idlePIDs(pool *pgxpool.Pool) map[uint32]bool {
	all := make(map[uint32]bool)
	for _, c := range pool.AcquireAllIdle(context.Background()) {
		all[c.Conn().PgConn().PID()] = true
		c.Release()
	}
	return all
}
