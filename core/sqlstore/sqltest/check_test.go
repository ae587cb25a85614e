package sqltest

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/sqlstore/internal/rows"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// unfit fails the test unless Check reports each of faults.
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

// isUnavailableOnce reports whether err matches store.ErrUnavailable and contains the
// text of store.ErrUnavailable once.
func isUnavailableOnce(err error) bool {
	return errors.Is(err, store.ErrUnavailable) && strings.Count(err.Error(), store.ErrUnavailable.Error()) == 1
}

func TestCheck(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		db := d.open(t)
		p := newStore(t, db, d)
		if err := p.Check(t.Context()); !isUnavailableOnce(err) || !strings.Contains(err.Error(), "call Migrate") {
			t.Errorf("without tables: got %v, want %v once that names Migrate", err, store.ErrUnavailable)
		}
		place, _ := d.place(t)
		if d.driver == "pgx" {
			unfit(t, p, "fsync = on") // the shared server has fsync off
		} else if err := p.Check(t.Context()); err != nil {
			t.Errorf("a sound database: got %v, want nil", err)
		} else if left, err := place.List(t.Context(), "", 10); err != nil || len(left) > 0 {
			t.Errorf("a sound database: got %d rows of the check, %v, want none", len(left), err)
		}
		sweep(t, place, "none", uint64(load(t, place, "none", false).Now.Add(time.Hour).UnixMicro()))
		unfit(t, p, "clock is more than a minute behind")
	})
}

// TestCheck_NoServer checks that errors do not blame the tables if no server answers,
// and that they name their class once.
func TestCheck_NoServer(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("mysql", "app@tcp(127.0.0.1:1)/shop")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	p := newStore(t, db, database{sqlstore.MySQL, "mysql", ""})
	_, acquire := p.Acquire(t.Context(), store.Claim{Key: "k", Owner: "o", Lease: "l", Weight: store.All, Limit: store.All, TTL: time.Second})
	for _, err := range []error{p.Check(t.Context()), acquire, sqlstore.Migrate(t.Context(), db, sqlstore.MySQL)} {
		if !isUnavailableOnce(err) || !strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), "Migrate") {
			t.Errorf("got %v, want %v once, and the reason", err, store.ErrUnavailable)
		}
	}
}

func TestMariaDB_Check(t *testing.T) {
	t.Parallel()
	server := testserver.StartMariaDB(t, "innodb_flush_log_at_trx_commit = 2", "max_allowed_packet = 512K", "sysdate_is_now = 1").NewDatabase(t)
	d := database{sqlstore.MySQL, "mysql", server.DSN()}
	place, db := d.place(t)
	db.SetMaxOpenConns(3)
	p := newStore(t, db, d)
	server.Exec("ALTER TABLE lockkit_seen ENGINE=MyISAM; SET GLOBAL read_only=1")
	unfit(t, p, "innodb_flush_log_at_trx_commit=1", "ENGINE=InnoDB", "connect to the primary", "max_allowed_packet=16M", "without sysdate_is_now", "a pool of 3 connections")
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

// TestMariaDB_Columns checks that Check reports columns that compare text by a
// collation, or that are too short.
func TestMariaDB_Columns(t *testing.T) {
	t.Parallel()
	s := mariaDB.Get(t).NewDatabase(t)
	d := database{sqlstore.MySQL, "mysql", s.DSN()}
	p := d.store(t)
	for change, back := range map[string]string{
		"lockkit_locks MODIFY name VARCHAR(512) CHARACTER SET latin1 NOT NULL":    "lockkit_locks MODIFY name VARBINARY(512) NOT NULL",
		"lockkit_locks MODIFY lease VARCHAR(255) CHARACTER SET latin1":            "lockkit_locks MODIFY lease VARBINARY(255)",
		"lockkit_locks MODIFY owner VARBINARY(100)":                               "lockkit_locks MODIFY owner VARBINARY(255)",
		"lockkit_locks MODIFY name VARBINARY(511) NOT NULL":                       "lockkit_locks MODIFY name VARBINARY(512) NOT NULL",
		"lockkit_locks MODIFY value BLOB":                                         "lockkit_locks MODIFY value LONGBLOB",
		"lockkit_locks MODIFY state LONGTEXT CHARACTER SET latin1":                "lockkit_locks MODIFY state LONGBLOB",
		"lockkit_seen MODIFY resource VARCHAR(512) CHARACTER SET latin1 NOT NULL": "lockkit_seen MODIFY resource VARBINARY(512) NOT NULL",
	} {
		s.Exec("ALTER TABLE " + change)
		unfit(t, p, "make the tables by Migrate or Schema")
		s.Exec("ALTER TABLE " + back)
		if err := p.Check(t.Context()); err != nil {
			t.Errorf("%s: got %v, want nil", back, err)
		}
	}
}

// TestMariaDB_StatementReplication checks that Check reports statements that are
// replicated as text, and that a refusal by the server changes nothing.
func TestMariaDB_StatementReplication(t *testing.T) {
	t.Parallel()
	server := testserver.StartMariaDB(t, "log_bin = bin", "binlog_format = STATEMENT", "sync_binlog = 0").NewDatabase(t)
	d := database{sqlstore.MySQL, "mysql", server.DSN()}
	unfit(t, d.store(t), "set binlog_format=ROW", "set sync_binlog=1")
	committed := d
	committed.dsn = server.DSN(isolation("READ-COMMITTED"))
	s := newStore(t, committed.open(t), committed)
	for name, c := range map[string]store.Claim{"usual": claim("key", long), "shared": shared("key")} {
		if _, err := s.Acquire(t.Context(), c); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "set binlog_format=ROW") {
			t.Errorf("%s: got %v, want %v that names the setting", name, err, store.ErrUnavailable)
		}
	}
	if n := holders(t, s, "key"); n != 0 {
		t.Errorf("got %d holds, want none", n)
	}
	server.Exec("SET GLOBAL binlog_format=MIXED; SET GLOBAL sync_binlog=1")
	mixed := newStore(t, committed.open(t), committed)
	if err := mixed.Check(t.Context()); err != nil {
		t.Errorf("with MIXED: got %v, want nil", err)
	}
	acquire(t, mixed, claim("key", long))
}

func TestSQLite_Check(t *testing.T) {
	t.Parallel()
	plain := database{sqlstore.SQLite, "sqlite", "file:" + t.TempDir() + "/plain.db?_pragma=synchronous(NORMAL)"}
	unfit(t, plain.store(t), "journal_mode=WAL", "synchronous=FULL", "busy_timeout")
}

// TestSQLite_InMemory checks that a database in memory is refused, because connections
// need not share it.
func TestSQLite_InMemory(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{":memory:", "file::memory:", "file:shared?mode=memory&cache=shared", ""} {
		db := database{sqlstore.SQLite, "sqlite", dsn}.open(t)
		s := newStore(t, db, database{dialect: sqlstore.SQLite})
		unfit(t, s, "check: the database is in memory")
		if err := sqlstore.Migrate(t.Context(), db, sqlstore.SQLite); !errors.Is(err, store.ErrUnsupported) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("migrate %q: got %v, want %v", dsn, err, store.ErrUnsupported)
		}
		var both [2]*sql.Conn // with tables that a tool has created
		for i := range both {
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.ExecContext(t.Context(), sqlstore.Schema(sqlstore.SQLite)); err != nil {
				t.Fatal(err)
			}
			both[i] = conn
		}
		for _, conn := range both {
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Acquire(t.Context(), claim("key", long)); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "in memory") {
				t.Errorf("acquire in %q: got %v, want %v that names the reason", dsn, err, store.ErrUnavailable)
			}
		}
	}
}

// TestSQLite_Network checks that Check refuses a file on a network file system. The test
// is not parallel, because it replaces the variable rows.FileSystem.
func TestSQLite_Network(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	s := database{sqlstore.SQLite, "sqlite", "file:" + file + "?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"}.store(t)
	system := rows.FileSystem
	defer func() { rows.FileSystem = system }()
	for kind, want := range map[uint32]string{0x6969: "NFS", 0xff534d42: "SMB", 0xfe534d42: "SMB", 0x517b: "SMB", 0x01021997: "9P"} {
		rows.FileSystem = func(path string) (uint32, error) {
			if path != file {
				t.Errorf("got the file %q, want %q", path, file)
			}
			return kind, nil
		}
		unfit(t, s, "the file is on a network file system ("+want+")")
	}
	for _, fn := range []func(string) (uint32, error){
		func(string) (uint32, error) { return 0xef53, nil },
		func(string) (uint32, error) { return 0x6969, errors.ErrUnsupported },
		system,
	} {
		rows.FileSystem = fn
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("another file system: got %v, want nil", err)
		}
	}
}

// TestCheck_Rights revokes one right after the other, and checks that Check names the
// GRANT of each right.
func TestCheck_Rights(t *testing.T) {
	t.Parallel()
	grants := []struct{ right, on string }{
		{"SELECT", "locks"}, {"INSERT", "locks"}, {"UPDATE", "locks"}, {"DELETE", "locks"}, {"SELECT", "version"}, {"UPDATE", "version"},
	}
	for name, begin := range map[string]func(t *testing.T) (d database, as, prefix string, exec func(sql string) []string){
		"mariadb": func(t *testing.T) (database, string, string, func(string) []string) {
			s := mariaDB.Get(t).NewDatabase(t)
			return database{sqlstore.MySQL, "mysql", s.DSN()}, "root@", "lockkit_", s.Exec
		},
		"postgres": func(t *testing.T) (database, string, string, func(string) []string) {
			s := durable.Get(t).NewDatabase(t)
			return database{sqlstore.PostgreSQL, "pgx", s.URL()}, "postgres@", "lockkit.", s.Exec
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, as, prefix, exec := begin(t)
			d.place(t)
			user := "locker" + strings.ToLower(rand.Text())[:10]
			d.dsn = strings.Replace(d.dsn, as, user+"@", 1)
			p := newStore(t, d.open(t), d)
			if d.driver == "pgx" {
				exec("CREATE ROLE " + user + " LOGIN")
				unfit(t, p, "GRANT USAGE ON SCHEMA lockkit")
				exec("GRANT USAGE ON SCHEMA lockkit TO " + user)
			} else {
				exec("CREATE USER " + user)
			}
			var all []string
			for _, g := range grants {
				all = append(all, "GRANT "+g.right+" ON "+prefix+g.on)
			}
			unfit(t, p, all...)
			if _, err := p.Acquire(t.Context(), claim("key", long)); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "lacks a right") {
				t.Errorf("acquire: got %v, want %v that names the reason", err, store.ErrUnavailable)
			}
			for _, grant := range all {
				exec(grant + " TO " + user)
			}
			// Since the refusal the database can count as down, until the next probe.
			var err error
			testserver.Eventually(t, long, "fit with every right", func() bool {
				if err = p.Check(t.Context()); err != nil && !errors.Is(err, store.ErrUnavailable) {
					t.Fatalf("with every right: got %v, want nil", err)
				}
				return err == nil
			})
			for _, grant := range all {
				exec("REVOKE" + strings.TrimPrefix(grant, "GRANT") + " FROM " + user)
				err := p.Check(t.Context())
				if err == nil || !strings.Contains(err.Error(), grant) {
					t.Errorf("got %v, want %q", err, grant)
				} else if n := strings.Count(err.Error(), "GRANT"); n != 1 {
					t.Errorf("got %d rights in %v, want one", n, err)
				}
				exec(grant + " TO " + user)
			}
		})
	}
}

// TestMariaDB_Rights checks that the error for a user who may only read names the
// missing right.
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
