package sqltest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/testserver"
)

// forget drops all further requests on the existing connections of a proxy, like a load
// balancer that has forgotten them. The connections stay open, and new connections
// work. It returns the number of the last connection that is forgotten.
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

// isPing reports whether a driver has sent r to test its connection.
func isPing(r testserver.Request) bool {
	return r.Name == "ping" || len(r.Args) > 0 && strings.Contains(r.Args[0], "-- ping")
}

// TestSilentConnections makes all idle connections silent. At most one call fails, and at
// most one statement is sent on a silent connection. If pgx pings it before, none is.
//
// hazard 23
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	const size = 4
	for name, begin := range map[string]func(t *testing.T) (database, *testserver.Proxy){
		"mariadb": func(t *testing.T) (database, *testserver.Proxy) {
			server := mariaDB.Get(t).NewDatabase(t)
			proxy := testserver.NewMySQLProxy(t, server.Addr)
			return database{sqlstore.MySQL, "mysql", server.DSNAt(proxy.Addr)}, proxy
		},
		"postgres": func(t *testing.T) (database, *testserver.Proxy) {
			server := postgres.Get(t).NewDatabase(t)
			proxy := testserver.NewPostgresProxy(t, server.Addr)
			return database{sqlstore.PostgreSQL, "pgx", server.URLAt(proxy.Addr)}, proxy
		},
	} {
		for _, c := range []struct {
			name string
			idle time.Duration
		}{
			{"idle", 1100 * time.Millisecond}, // pgx pings connections that were idle for a second
			{"used just before", 0},
		} {
			t.Run(name+" "+c.name, func(t *testing.T) {
				t.Parallel()
				d, proxy := begin(t)
				_, db := d.place(t)
				s := newStore(t, db, d)
				fill(t, db, size)
				time.Sleep(c.idle)
				last := forget(proxy)
				proxy.Forget()
				failures := 0
				for range 2 * size {
					if _, err := s.Acquire(t.Context(), claim(rand.Text(), long)); err != nil {
						t.Logf("acquire: %v", err)
						failures++
					}
				}
				sent := 0
				for _, r := range proxy.Requests() {
					if r.Link <= last && !isPing(r) {
						sent++
					}
				}
				// After the ping of a silent connection, a call has less time for a new
				// connection. On a busy machine that may be too short.
				most := 1
				if name == "postgres" && c.name == "idle" {
					most = 0
				}
				if failures > 1 || sent > most {
					t.Errorf("got %d failures, %d statements on silent connections, want at most 1, %d", failures, sent, most)
				}
			})
		}
	}
}

// TestSilentConnections_OthersStay checks that connections that answer stay in the pool
// after a call without an answer.
func TestSilentConnections_OthersStay(t *testing.T) {
	t.Parallel()
	const size = 4
	server := mariaDB.Get(t).NewDatabase(t)
	proxy := testserver.NewMySQLProxy(t, server.Addr)
	d := database{sqlstore.MySQL, "mysql", server.DSNAt(proxy.Addr)}
	_, db := d.place(t)
	s := newStore(t, db, d)
	eventually(t, func() error { // on a busy machine a ping can take too long
		fill(t, db, size)
		proxy.Inject(testserver.Statement("INSERT INTO lockkit_locks"), testserver.DropRequest)
		if _, err := s.Acquire(t.Context(), claim(rand.Text(), long)); err == nil {
			return errors.New("the call without an answer succeeded")
		}
		if _, err := s.Acquire(t.Context(), claim(rand.Text(), long)); err != nil {
			return err
		}
		if n := db.Stats().Idle; n < size-1 {
			return fmt.Errorf("got %d idle connections, want at least %d", n, size-1)
		}
		return nil
	})
}
