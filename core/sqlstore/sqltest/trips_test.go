package sqltest

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/sqlstore/internal/rows"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestRoundTrips checks that the usual lock and its release take one round trip each.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(t *testing.T) (database, *testserver.Proxy){
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, proxy := make(t)
			db := d.open(t)
			db.SetMaxOpenConns(1) // the connection that has prepared the statements
			d.place(t)
			p := rows.New(db, d.dialect.Dialect) // a Store would also sweep
			cycle := func() {
				c := claim("key", long)
				_, taken := take(t, p, c)
				if given := give(t, p, c); !taken || !given {
					t.Fatalf("got a grant %v, a release %v, want both", taken, given)
				}
			}
			cycle()
			proxy.Forget()
			cycle()
			cycle()
			sent := 0
			for _, r := range proxy.Requests() {
				// pgx pings after a second.
				if len(r.Args) == 0 || !strings.Contains(r.Args[0], "-- ping") {
					sent++
				}
			}
			if sent != 4 {
				t.Errorf("got %d requests for two cycles, want 4: %v", sent, proxy.Requests())
			}
		})
	}
}

// TestSQLite_RoundTrips checks that the usual lock and its release are one statement
// each, after a proof that no transaction is open. Holds are extended together.
func TestSQLite_RoundTrips(t *testing.T) {
	t.Parallel()
	dsn := "file:" + filepath.Join(t.TempDir(), "locks.db") + "?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	d := database{sqlstore.SQLite, "sqlite", dsn}
	_, plain := d.place(t)
	driver := &counted{of: plain.Driver(), dsn: dsn}
	db := sql.OpenDB(driver)
	t.Cleanup(func() { _ = db.Close() })
	p := rows.New(db, d.dialect.Dialect)
	for i := range 3 {
		c := claim("key", long)
		_, taken := take(t, p, c)
		if given := give(t, p, c); !taken || !given {
			t.Fatalf("got a grant %v, a release %v, want both", taken, given)
		}
		sent, proofs := driver.take(), 0
		for _, text := range sent {
			if strings.HasPrefix(text, "BEGIN") {
				proofs++
			}
		}
		if i > 0 && (len(sent) != 4 || proofs != 2) { // the first cycle also reads the file's name
			t.Errorf("cycle %d: got %q, want two statements and two proofs", i, sent)
		}
	}
	claims := make([]store.Claim, 64)
	for i := range claims {
		claims[i] = claim(fmt.Sprint("key ", i), long)
		take(t, p, claims[i])
	}
	driver.take()
	if done, err := p.Extend(t.Context(), claims, version()); err != nil || slices.Contains(done, false) {
		t.Errorf("extend: got %v, %v, want all", done, err)
	}
	if sent := driver.take(); len(sent) != 2 {
		t.Errorf("extend: got %d statements, want one and a proof", len(sent))
	}
}

// TestMariaDB_RoundTripsBesideALockedRow checks that a row locked by another
// transaction adds one round trip to the extension of the other rows.
func TestMariaDB_RoundTripsBesideALockedRow(t *testing.T) {
	t.Parallel()
	server := mariaDB.Get(t).NewDatabase(t)
	proxy := testserver.NewMySQLProxy(t, server.Addr)
	direct := database{sqlstore.MySQL, "mysql", server.DSN()}
	place, db := direct.place(t)
	var claims []store.Claim
	for i := range 64 {
		claims = append(claims, claim(fmt.Sprint("key ", i), long))
		take(t, place, claims[i])
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "UPDATE lockkit_locks SET due=due+1 WHERE name='key 20'"); err != nil {
		t.Fatal(err)
	}
	direct.dsn = server.DSNAt(proxy.Addr)
	p := rows.New(direct.open(t), direct.dialect.Dialect)
	done, err := p.Extend(t.Context(), claims, version())
	if err != nil {
		t.Fatal(err)
	}
	for i, ok := range done {
		if ok != (i != 20) {
			t.Errorf("hold %d extended: got %v, want %v", i, ok, i != 20)
		}
	}
	sent := 0
	for _, r := range proxy.Requests() {
		if text := strings.Join(append([]string{r.Name}, r.Args...), " "); strings.Contains(text, "lockkit_locks") {
			sent++
		}
	}
	if sent != 2 {
		t.Errorf("got %d statements, want 2", sent)
	}
}
