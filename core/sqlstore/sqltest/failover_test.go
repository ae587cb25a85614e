package sqltest

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// pair is a primary and a read-only server with the same tables, behind a proxy.
type pair struct {
	behind            database
	proxy             *testserver.Proxy
	primary, readOnly string // addresses
}

// ofPostgres are a primary and a standby.
var ofPostgres = testserver.NewShared(func(t testing.TB) [2]*testserver.Postgres {
	primary, standby := testserver.StartPostgres(t), testserver.StartPostgres(t)
	for _, s := range []*testserver.Postgres{primary, standby} {
		database{sqlstore.PostgreSQL, "pgx", s.URL()}.place(t)
	}
	standby.Exec("CHECKPOINT")
	if err := os.WriteFile(filepath.Join(standby.Dir, "data", "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	standby.Restart()
	return [2]*testserver.Postgres{primary, standby}
})

// pairOfPostgres returns a primary and a standby, which other pairs share. The URL has
// these parameters.
func pairOfPostgres(t *testing.T, parameters ...string) *pair {
	t.Helper()
	servers := ofPostgres.Get(t)
	primary, standby := servers[0], servers[1]
	proxy := testserver.NewPostgresProxy(t, primary.Addr)
	behind := primary.URLAt(proxy.Addr, append(parameters, "default_query_exec_mode=simple_protocol")...)
	return &pair{database{sqlstore.PostgreSQL, "pgx", behind}, proxy, primary.Addr, standby.Addr}
}

// pairOfMariaDB returns a primary and a server with read_only=1. The database's user
// may not write on the second server.
func pairOfMariaDB(t *testing.T) *pair {
	t.Helper()
	primary, replica := mariaDB.Get(t).NewDatabase(t), testserver.StartMariaDB(t)
	user, name := "app"+strings.ToLower(rand.Text())[:10], primary.Exec("SELECT DATABASE()")[0]
	replica.Exec("CREATE DATABASE " + name)
	for _, s := range []*testserver.MariaDB{primary, replica} {
		s.Exec("CREATE USER " + user + "; GRANT ALL ON " + name + ".* TO " + user)
		database{sqlstore.MySQL, "mysql", primary.DSNAt(s.Addr)}.place(t)
	}
	replica.Exec("SET GLOBAL read_only=1")
	proxy := testserver.NewMySQLProxy(t, primary.Addr)
	behind := strings.Replace(primary.DSNAt(proxy.Addr), "root@", user+"@", 1)
	return &pair{database{sqlstore.MySQL, "mysql", behind}, proxy, primary.Addr, replica.Addr}
}

// fill makes a pool open n connections, and leaves them idle.
func fill(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	db.SetMaxIdleConns(n)
	eventually(t, func() error {
		for range n {
			c, err := db.Conn(t.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			if err := c.PingContext(t.Context()); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestFailover checks a server that reports that it is read-only. The pool leaves the
// server, and the refused statement is not sent again.
//
// hazard 23
func TestFailover(t *testing.T) {
	t.Parallel()
	const size = 4
	for name, begin := range map[string]func(t *testing.T) *pair{
		"mariadb":  pairOfMariaDB,
		"postgres": func(t *testing.T) *pair { return pairOfPostgres(t) },
		"postgres serializable": func(t *testing.T) *pair {
			return pairOfPostgres(t, "options=-c%20default_transaction_isolation%3Dserializable")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := begin(t)
			for _, what := range []string{"acquire", "acquire, shared", "extend", "release", "look"} {
				p.proxy.Retarget(p.primary)
				db := p.behind.open(t)
				s := newStore(t, db, p.behind)
				held := claim(rand.Text(), long)
				acquire(t, s, held)
				// A slow sweep of s could meet the other server before the call does.
				_ = s.Close()
				s = newStore(t, db, p.behind)
				p.proxy.Retarget(p.readOnly)
				p.proxy.Sever()
				fill(t, db, size)
				p.proxy.Retarget(p.primary) // the pool's connections still lead to the other server
				p.proxy.Forget()
				var err error
				switch what {
				case "acquire":
					_, err = s.Acquire(t.Context(), claim(rand.Text(), long))
				case "acquire, shared":
					_, err = s.Acquire(t.Context(), shared(rand.Text()))
				case "extend":
					err = s.Extend(t.Context(), []store.Claim{held})[0].Err
				case "release":
					err = s.Release(t.Context(), held)
				case "look":
					_, err = s.Look(t.Context(), held.Key)
				}
				if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "to the primary") {
					t.Errorf("%s: got %v, want %v that names the primary", what, err, store.ErrUnavailable)
				}
				if n := len(p.proxy.Statements("INSERT INTO lockkit")) + len(p.proxy.Statements("UPDATE lockkit")); n > 1 {
					t.Errorf("%s: it was sent %d times, want at most once", what, n)
				}
				// A call in flight, for example a sweep, keeps its connection.
				eventually(t, func() error {
					if n := db.Stats().InUse; n > 0 {
						return fmt.Errorf("%d connections are in use", n)
					}
					return nil
				})
				// The former s may refuse calls, because the server still counts as
				// down for it.
				s = newStore(t, db, p.behind)
				var all sync.WaitGroup
				for range size {
					all.Go(func() {
						if _, err := s.Acquire(t.Context(), claim(rand.Text(), long)); err != nil {
							t.Errorf("%s, then acquire: got %v, want a grant", what, err)
						}
					})
				}
				all.Wait()
				release(t, s, held)
			}
		})
	}
}
