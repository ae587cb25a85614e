package sqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestFullServer checks that a server with the maximum number of sessions changes
// nothing, and works again after some sessions were closed.
func TestFullServer(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T) database{"mariadb": smallMariaDB, "postgres": smallPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := begin(t)
			db := d.open(t)
			s := newStore(t, db, d)
			_, other := d.place(t)
			held := claim("held", long)
			acquire(t, s, held)
			db.SetMaxIdleConns(0) // the next call opens a connection
			free := occupy(t, d, db, other)
			refused := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(strings.ToLower(err.Error()), "too many") {
					t.Errorf("%s: got %v, want %v that names the reason", what, err, store.ErrUnavailable)
				}
			}
			_, err := s.Acquire(t.Context(), claim("key", long))
			refused("acquire", err)
			_, err = s.Acquire(t.Context(), shared("key"))
			refused("acquire, shared", err)
			refused("extend", s.Extend(t.Context(), []store.Claim{held})[0].Err)
			refused("release", s.Release(t.Context(), held))
			free()
			eventually(t, func() error { return s.Extend(t.Context(), []store.Claim{held})[0].Err })
			release(t, s, held)
			acquire(t, s, claim("key", long)) // no lease holds the key
		})
	}
}

// smallMariaDB and smallPostgres return a database on a server with few sessions.
func smallMariaDB(t *testing.T) database {
	t.Helper()
	return database{sqlstore.MySQL, "mysql", testserver.StartMariaDB(t, "max_connections = 12").NewDatabase(t).DSN()}
}

func smallPostgres(t *testing.T) database {
	t.Helper()
	s := testserver.StartPostgres(t, "max_connections = 12", "superuser_reserved_connections = 1")
	return database{sqlstore.PostgreSQL, "pgx", s.NewDatabase(t).URL()}
}

// occupy opens sessions until the server of d refuses one. free closes these sessions.
// A server ends a session some time after its connection was closed. The end of an
// older session would make room. So occupy waits until the server has only the sessions
// of occupy and of pools.
func occupy(t *testing.T, d database, pools ...*sql.DB) (free func()) {
	t.Helper()
	counting := map[string]string{
		"mysql": "SELECT COUNT(*) FROM information_schema.processlist WHERE command<>'Daemon'",
		"pgx":   "SELECT count(*) FROM pg_stat_activity WHERE backend_type='client backend'",
	}[d.driver]
	idle := d.open(t)
	var all []*sql.Conn
	fill := func() {
		for len(all) < 50 {
			c, err := idle.Conn(t.Context())
			if err != nil {
				return
			}
			all = append(all, c)
		}
	}
	fill()
	eventually(t, func() error {
		if len(all) == 0 || len(all) == 50 {
			return fmt.Errorf("%d sessions were opened, the server is not full", len(all))
		}
		before, sessions, known := len(all), 0, len(all)
		if err := all[0].QueryRowContext(t.Context(), counting).Scan(&sessions); err != nil {
			return err
		}
		for _, pool := range pools {
			known += pool.Stats().OpenConnections
		}
		if fill(); sessions != known || len(all) != before {
			return fmt.Errorf("%d sessions, of which %d are known", sessions, known)
		}
		return nil
	})
	return func() {
		for _, c := range all {
			_ = c.Close()
		}
		_ = idle.Close()
	}
}

// TestMariaDB_ReadOnly checks that a server that has become read-only changes nothing,
// and that no hold is lost.
func TestMariaDB_ReadOnly(t *testing.T) {
	t.Parallel()
	server := testserver.StartMariaDB(t)
	in := server.NewDatabase(t)
	d := database{sqlstore.MySQL, "mysql", in.DSN()}
	d.place(t)
	user := "app" + strings.ToLower(rand.Text())[:10]
	in.Exec("CREATE TABLE orders (name VARCHAR(100) NOT NULL)")
	in.Exec("CREATE USER " + user + "; GRANT ALL ON " + in.Exec("SELECT DATABASE()")[0] + ".* TO " + user)
	d.dsn = strings.Replace(d.dsn, "root@", user+"@", 1) // root may write on a read-only server
	db := d.open(t)
	s := newStore(t, db, d)
	held, run := claim("held", long), claim("run", long)
	run.Record = &store.Record{Value: []byte("begun"), Retain: long}
	acquire(t, s, held)
	acquire(t, s, run)
	run.Record = &store.Record{Value: []byte("answer"), Attempt: 1, Done: true, Retain: long}
	commit := func() error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := sqlstore.In(tx).SaveRun(context.WithoutCancel(t.Context()), s, run); err != nil {
			return err
		}
		return tx.Commit()
	}
	server.Exec("SET GLOBAL read_only=1")
	_, usual := s.Acquire(t.Context(), claim("key", long))
	_, loaded := s.Acquire(t.Context(), shared("key"))
	for what, err := range map[string]error{
		"acquire": usual, "acquire, shared": loaded,
		"extend": s.Extend(t.Context(), []store.Claim{held})[0].Err, "release": s.Release(t.Context(), held),
	} {
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "to the primary") {
			t.Errorf("%s: got %v, want %v that names the primary", what, err, store.ErrUnavailable)
		}
	}
	if err := commit(); err == nil || !strings.Contains(err.Error(), "to the primary") {
		t.Errorf("commit: got %v, want an error of the server that names the primary", err)
	}
	server.Exec("SET GLOBAL read_only=0")
	eventually(t, func() error { return s.Extend(t.Context(), []store.Claim{held})[0].Err })
	release(t, s, held)
	if err := commit(); err != nil {
		t.Errorf("commit: got %v, want nil", err)
	}
	if state, err := s.Look(t.Context(), "run"); err != nil || state.Run == nil || !state.Run.Done {
		t.Errorf("got %+v and %v, want a run that is done", state.Run, err)
	}
}

// TestSQLite_Full checks a file that may not grow. Changes that need room are refused,
// and extensions and releases are still accepted.
func TestSQLite_Full(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "locks.db")
	d := database{sqlstore.SQLite, "sqlite", "file:" + file + "?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"}
	roomy := d.store(t)
	held, other, run := claim("held", long), shared("other"), claim("run", long)
	run.Record = &store.Record{Value: []byte("begun"), Retain: long}
	acquire(t, roomy, held)
	acquire(t, roomy, other)
	acquire(t, roomy, run)
	run.Record = &store.Record{Value: make([]byte, 1<<20), Attempt: 1, Done: true, Retain: long}
	full := d
	full.dsn += "&_pragma=max_page_count(1)" // or the present number of pages
	db := full.open(t)
	s := newStore(t, db, full)
	isFull := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "full") {
			t.Errorf("%s: got %v, want %v that names the reason", what, err, store.ErrUnavailable)
		}
	}
	var err error
	granted := 0
	for err == nil && granted < 1000 {
		if _, err = s.Acquire(t.Context(), claim(strings.Repeat("long", 100)+rand.Text(), long)); err == nil {
			granted++
		}
	}
	isFull("acquire", err)
	for err = nil; err == nil && granted < 1000; granted++ {
		_, err = s.Acquire(t.Context(), shared(strings.Repeat("long", 100)+rand.Text()))
	}
	isFull("acquire, shared", err)
	for i, e := range s.Extend(t.Context(), []store.Claim{held, other}) {
		if e.Err != nil {
			t.Errorf("extend, hold %d: got %v, want nil", i, e.Err)
		}
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sqlstore.In(tx).SaveRun(t.Context(), s, run); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("commit: got %v, want an error", err)
	}
	_ = tx.Rollback()
	isFull("release with an answer", s.Release(t.Context(), run))
	if n := holders(t, s, "run"); n != 1 {
		t.Errorf("got %d holds of the run, want 1", n)
	}
	run.Record.Value = []byte("answer")
	for _, c := range []store.Claim{held, other, run} {
		release(t, s, c)
	}
	for _, key := range []string{"held", "other", "run"} {
		acquire(t, s, claim(key, long))
	}
}
