package sqltest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// unfit fails the test unless Check names each fault.
func unfit(t *testing.T, p *sqlstore.Store, faults ...string) {
	t.Helper()
	err := p.Check(t.Context())
	if err == nil {
		t.Fatalf("got no error, want one with %q", faults)
	}
	for _, fault := range faults {
		if !strings.Contains(err.Error(), fault) {
			t.Errorf("got %v, want an error with %q", err, fault)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		db := d.open(t)
		p := newStore(t, db, d)
		if err := p.Check(t.Context()); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "call Migrate") {
			t.Errorf("without tables: got %v, want %v that names Migrate", err, store.ErrUnavailable)
		}
		place, _ := d.place(t)
		if d.driver == "pgx" {
			unfit(t, p, "fsync = on") // as the shared server is
		} else if err := p.Check(t.Context()); err != nil {
			t.Errorf("a sound database: got %v, want nil", err)
		}
		sweep(t, place, "none", uint64(load(t, place, "none", false).Now.Add(time.Hour).UnixMicro()))
		unfit(t, p, "clock is more than a minute behind")
	})
}

func TestMariaDB_Check(t *testing.T) {
	t.Parallel()
	server := testserver.StartMariaDB(t, "innodb_flush_log_at_trx_commit = 2").NewDatabase(t)
	d := database{sqlstore.MySQL, "mysql", server.DSN()}
	place, db := d.place(t)
	db.SetMaxOpenConns(3)
	p := newStore(t, db, d)
	server.Exec("ALTER TABLE lockkit_seen ENGINE=MyISAM; SET GLOBAL read_only=1")
	unfit(t, p, "innodb_flush_log_at_trx_commit=1", "ENGINE=InnoDB", "connect to the primary", "a pool of 3 connections")
	if _, err := place.Load(t.Context(), "key", casstore.Want{}); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "to the primary") {
		t.Errorf("a read of a replica: got %v, want %v that names the primary", err, store.ErrUnavailable)
	}
	server.Exec("SET GLOBAL read_only=0")
	off := d
	off.dsn += "&autocommit=0"
	unfit(t, newStore(t, off.open(t), off), "autocommit=1")
	if testserver.IsMySQL() {
		patient := d
		patient.dsn += "&innodb_lock_wait_timeout=50"
		unfit(t, newStore(t, patient.open(t), patient), "innodb_lock_wait_timeout=1")
	}
	d.dialect = sqlstore.PostgreSQL
	unfit(t, newStore(t, db, d), "as those of PostgreSQL")
}

func TestSQLite_Check(t *testing.T) {
	t.Parallel()
	plain := database{sqlstore.SQLite, "sqlite", "file:" + t.TempDir() + "/plain.db?_pragma=synchronous(NORMAL)"}
	unfit(t, plain.store(t), "journal_mode=WAL", "synchronous=FULL", "busy_timeout")
	db := database{sqlstore.SQLite, "sqlite", ":memory:"}.open(t)
	db.SetMaxOpenConns(1)
	if err := sqlstore.Migrate(t.Context(), db, sqlstore.SQLite); err != nil {
		t.Fatal(err)
	}
	unfit(t, newStore(t, db, database{dialect: sqlstore.SQLite}), "in memory")
}

// TestMariaDB_Rights shows that a user who may only read is refused, and that nothing
// has changed.
func TestMariaDB_Rights(t *testing.T) {
	t.Parallel()
	s := mariaDB.Get(t).NewDatabase(t)
	d := database{sqlstore.MySQL, "mysql", s.DSN()}
	d.place(t)
	name := "reader" + strings.TrimPrefix(s.Exec("SELECT DATABASE()")[0], "test_")[:10]
	s.Exec("CREATE USER " + name + "; GRANT SELECT ON " + s.Exec("SELECT DATABASE()")[0] + ".* TO " + name)
	d.dsn = strings.Replace(d.dsn, "root@", name+"@", 1)
	if _, err := newStore(t, d.open(t), d).Acquire(t.Context(), claim("key", long)); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "INSERT") {
		t.Errorf("got %v, want %v that names the right", err, store.ErrUnavailable)
	}
}
