package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/sqlstore/internal/rows"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestMariaDB_Sessions checks that these settings of a session do not matter.
// TestMariaDB_AutocommitOff and TestMariaDB_ReadUncommitted check the settings that do.
func TestMariaDB_Sessions(t *testing.T) {
	t.Parallel()
	for name, parameters := range map[string][]string{
		"found rows":              {"clientFoundRows=true"},
		"parsed times":            {"parseTime=true", "loc=Asia%2FKolkata", "time_zone=%27-11:00%27"},
		"no checks":               {"sql_mode=%27%27"},
		"ansi":                    {"sql_mode=" + url.QueryEscape("'ANSI,STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES,NO_UNSIGNED_SUBTRACTION,HIGH_NOT_PRECEDENCE'")},
		"oracle":                  {"sql_mode=" + url.QueryEscape("'ORACLE,EMPTY_STRING_IS_NULL'")},
		"serializable":            {isolation("SERIALIZABLE")},
		"one snapshot":            {"innodb_snapshot_isolation=1"},
		"interpolated parameters": {"interpolateParams=true", "multiStatements=true"},
		"another collation":       {"charset=latin1", "collation=latin1_german1_ci"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "oracle" || name == "one snapshot" {
				notOnMySQL(t, "session of this kind")
			}
			p, _ := onMariaDB(t, parameters...).place(t)
			first, other := claim("Key", long), claim("Key", long)
			token, ok := take(t, p, first)
			if now := uint64(time.Now().UnixMicro()); !ok || token > now || token < now-10_000_000 {
				t.Errorf("got token %d, granted %v, at %d", token, ok, now)
			}
			if _, ok := take(t, p, other); ok {
				t.Error("a held key: got a grant, want a refusal")
			}
			if _, ok := take(t, p, claim("key ", long)); !ok {
				t.Error("a key that differs by case and a blank: got a refusal, want a grant")
			}
			if give(t, p, other) || !give(t, p, first) || give(t, p, first) {
				t.Error("want one release of the holder")
			}
			old := load(t, p, "row", true)
			big := []byte(strings.Repeat("\\'\x00\xff", 40_000))
			if !save(t, p, "row", old, casstore.Entry{State: []byte("{}"), Value: big, Due: old.Now}) {
				t.Error("a new row: got false, want true")
			}
			if save(t, p, "row", old, casstore.Entry{Due: old.Now}) {
				t.Error("a row that is there: got true, want false")
			}
			if r := load(t, p, "row", true); string(r.Value) != string(big) || r.State == nil {
				t.Errorf("got a value of %d bytes, state %v", len(r.Value), r.State)
			}
		})
	}
}

// TestPostgreSQL_Sessions checks that unusual settings of a session of PostgreSQL do
// not break the exclusion.
func TestPostgreSQL_Sessions(t *testing.T) {
	t.Parallel()
	d := database{sqlstore.PostgreSQL, "pgx", postgres.Get(t).NewDatabase(t,
		"default_transaction_isolation = 'serializable'", "synchronous_commit = off", "standard_conforming_strings = off",
		"bytea_output = 'escape'", "DateStyle = 'SQL, DMY'", "TimeZone = 'America/St_Johns'").URL()}
	r := d.store(t)
	var all sync.WaitGroup
	counted := 0 // one holder at a time writes it
	for range 4 {
		all.Go(func() {
			for n := 0; n < 5; {
				c := claim("key", long)
				_, err := r.Acquire(t.Context(), c)
				if errors.Is(err, store.ErrBusy) {
					time.Sleep(time.Millisecond)
					continue
				}
				if err == nil {
					n++
					counted++
				} else {
					t.Log(err) // on a busy machine an acquire can have no answer in time
				}
				granted := err == nil
				testserver.Eventually(t, long, "the key is released", func() bool {
					err := r.Release(t.Context(), c)
					lost := errors.Is(err, store.ErrLost)
					if lost && granted {
						t.Error(err)
					}
					// The answer to an earlier release can be missing.
					granted = granted && err == nil
					return err == nil || lost
				})
			}
		})
	}
	all.Wait()
	if counted != 20 {
		t.Errorf("got %d, want 20", counted)
	}
}

// TestMariaDB_AutocommitOff checks that a session with autocommit off changes nothing,
// and that errors name the setting. It does not matter whether the DSN, the server or
// init_connect sets it. A DSN with autocommit=1 overrides both of the server's settings.
func TestMariaDB_AutocommitOff(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T) (sound, off database){
		"dsn": func(t *testing.T) (sound, off database) {
			s := mariaDB.Get(t).NewDatabase(t)
			return database{sqlstore.MySQL, "mysql", s.DSN()}, database{sqlstore.MySQL, "mysql", s.DSN("autocommit=0")}
		},
		"server": func(t *testing.T) (sound, off database) {
			s := testserver.StartMariaDB(t, "autocommit = 0").NewDatabase(t)
			return database{sqlstore.MySQL, "mysql", s.DSN("autocommit=1")}, database{sqlstore.MySQL, "mysql", s.DSN()}
		},
		"init_connect": func(t *testing.T) (sound, off database) {
			s := testserver.StartMariaDB(t, "init_connect = 'SET autocommit=0'").NewDatabase(t)
			// The user has no SUPER.
			s.Exec("CREATE USER app; GRANT ALL ON " + s.Exec("SELECT DATABASE()")[0] + ".* TO app")
			as := func(dsn string) database {
				return database{sqlstore.MySQL, "mysql", strings.Replace(dsn, "root@", "app@", 1)}
			}
			return as(s.DSN("autocommit=1")), as(s.DSN())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			soundly, d := begin(t)
			db := d.open(t)
			db.SetMaxOpenConns(4)
			if err := sqlstore.Migrate(t.Context(), db, d.dialect); err != nil {
				t.Fatalf("migrate: got %v, want nil", err)
			}
			sound, committing := soundly.place(t)
			s := newStore(t, committing, soundly)
			if err := s.Check(t.Context()); err != nil {
				t.Errorf("check of a session with autocommit: got %v, want nil", err)
			}
			unfit(t, newStore(t, db, d), "autocommit=1")
			held := claim("held", long)
			take(t, sound, held)
			one := d.open(t)
			one.SetMaxOpenConns(1)
			unchanged(t, rows.New(one, d.dialect.Dialect), sound, held, "autocommit")

			run := claim("run", long)
			run.Record = &store.Record{Value: []byte("begun"), Retain: long}
			acquire(t, s, run)
			run.Record = &store.Record{Value: []byte("answer"), Attempt: 1, Done: true, Retain: long}
			for want, db := range map[error]*sql.DB{store.ErrInvalid: db, nil: committing} {
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := sqlstore.In(tx).SaveRun(t.Context(), s, run); !errors.Is(err, want) {
					t.Errorf("commit: got %v, want %v", err, want)
				}
				if err := tx.Rollback(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestMariaDB_ReadUncommitted checks that a session that reads uncommitted rows is
// refused. Such a session could return an answer that is rolled back later.
func TestMariaDB_ReadUncommitted(t *testing.T) {
	t.Parallel()
	d := onMariaDB(t)
	sound, _ := d.place(t)
	d.dsn += "&" + isolation("READ-UNCOMMITTED")
	p := rows.New(d.open(t), d.dialect.Dialect)
	held := claim("held", long)
	take(t, sound, held)
	unchanged(t, p, sound, held, "READ-UNCOMMITTED")
}

// TestMariaDB_Timestamp checks that a session with a time of its own is refused. By
// such a time a hold could expire early.
func TestMariaDB_Timestamp(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"an hour ahead": time.Hour, "an hour behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := onMariaDB(t)
			sound, _ := d.place(t)
			d.dsn += fmt.Sprint("&timestamp=", time.Now().Add(off).Unix())
			p := rows.New(d.open(t), d.dialect.Dialect)
			held := claim("held", long)
			take(t, sound, held)
			unchanged(t, p, sound, held, "timestamp")
		})
	}
}

// TestOpenTransaction checks that a connection on which the caller's code has left a
// transaction open changes nothing.
func TestOpenTransaction(t *testing.T) {
	t.Parallel()
	left := func(t *testing.T, d database) {
		sound, _ := d.place(t)
		db := d.open(t)
		db.SetMaxOpenConns(1)
		if _, err := db.ExecContext(t.Context(), "BEGIN"); err != nil {
			t.Fatal(err)
		}
		p := rows.New(db, d.dialect.Dialect)
		held := claim("held", long)
		take(t, sound, held)
		unchanged(t, p, sound, held, "open transaction")
	}
	everywhere(t, left)
	t.Run("another driver", func(t *testing.T) {
		t.Parallel()
		left(t, database{sqlstore.PostgreSQL, "another", postgres.Get(t).NewDatabase(t).URL()})
	})
	t.Run("another driver of MariaDB", func(t *testing.T) {
		t.Parallel()
		d := onMariaDB(t)
		d.driver = "another of mysql"
		left(t, d)
	})
}

// TestAnotherDriver checks that a Store works with an unknown driver. Statements check
// its sessions for an open transaction.
func TestAnotherDriver(t *testing.T) {
	t.Parallel()
	onMySQL := onMariaDB(t)
	onMySQL.driver = "another of mysql"
	for _, d := range []database{{sqlstore.PostgreSQL, "another", postgres.Get(t).NewDatabase(t).URL()}, onMySQL} {
		s := d.store(t)
		for range 3 {
			for _, c := range []store.Claim{claim("key", long), shared("key")} {
				acquire(t, s, c)
				release(t, s, c)
			}
		}
	}
}

// unchanged fails the test unless p changes nothing, and the error of Load contains
// why.
func unchanged(t *testing.T, p, sound *rows.Place, held store.Claim, why string) {
	t.Helper()
	none := func(what string, ok bool, err error) {
		t.Helper()
		if ok || err != nil && (!errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), why)) {
			t.Errorf("%s: got %v, %v, want no change", what, ok, err)
		}
	}
	for _, key := range []string{"free", "held"} {
		_, ok, err := p.Take(t.Context(), claim(key, long), version())
		none("take", ok, err)
		old := load(t, sound, key, false)
		ok, err = p.Save(t.Context(), key, old, casstore.Entry{Version: version(), Due: old.Now})
		none("save", ok, err)
		if _, err := p.Load(t.Context(), key, casstore.Want{}); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), why) {
			t.Errorf("load: got %v, want %v with %q", err, store.ErrUnavailable, why)
		}
	}
	ok, err := p.Give(t.Context(), held, version())
	none("give", ok, err)
	done, err := p.Extend(t.Context(), []store.Claim{held}, version())
	none("extend", err == nil && done[0], err)
	if r := load(t, sound, "held", false); r.Alone.Lease != held.Lease {
		t.Error("the hold is gone")
	}
	if r := load(t, sound, "free", false); r.Version != 0 {
		t.Error("a row is left behind")
	}
}

// TestLockedRow checks calls for a row that another transaction has locked. They fail
// and change nothing, and the other holds of the process are extended.
func TestLockedRow(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(t *testing.T) database{
		"mariadb": func(t *testing.T) database { return onMariaDB(t) },
		"postgres": func(t *testing.T) database {
			return database{sqlstore.PostgreSQL, "pgx", postgres.Get(t).NewDatabase(t).URL()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := make(t)
			p, db := d.place(t)
			s := newStore(t, db, d)
			var claims []store.Claim
			for i := range 512 {
				claims = append(claims, claim(fmt.Sprint("key ", i), long))
				take(t, p, claims[i])
			}
			c := claims[100]
			table := map[string]string{"mysql": "lockkit_locks", "pgx": "lockkit.locks"}[d.driver]
			quoted := map[string]string{"mysql": "X'%x'", "pgx": `'\x%x'`}[d.driver]
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.ExecContext(t.Context(), "UPDATE "+table+" SET due=due+1 WHERE name="+fmt.Sprintf(quoted, c.Key)); err != nil {
				t.Fatal(err)
			}
			for i, e := range s.Extend(t.Context(), claims) {
				if i != 100 && e.Err != nil {
					t.Errorf("hold %d: got %v, want it extended", i, e.Err)
				}
			}
			if _, ok, err := p.Take(t.Context(), claim(c.Key, long), version()); ok || !errors.Is(err, casstore.ErrConflict) {
				t.Errorf("take: got %v, %v, want %v", ok, err, casstore.ErrConflict)
			}
			if ok, err := p.Give(t.Context(), c, version()); ok || !errors.Is(err, casstore.ErrConflict) {
				t.Errorf("give: got %v, %v, want %v", ok, err, casstore.ErrConflict)
			}
			if _, err := s.Acquire(t.Context(), claim(c.Key, long)); !errors.Is(err, store.ErrBusy) {
				t.Errorf("acquire: got %v, want %v", err, store.ErrBusy)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if !give(t, p, c) {
				t.Error("the hold is gone")
			}
		})
	}
}

// TestLockedRow_CallersLeave counts the sessions that wait at the server for locked
// rows. Callers that leave again and again do not increase that number, because their
// calls keep the connections of the pool. The statements of a process that has vanished
// end as well.
func TestLockedRow_CallersLeave(t *testing.T) {
	t.Parallel()
	const callers = 8
	behindProxy(t, func(t *testing.T, direct, behind database, proxy *testserver.Proxy, _ string) {
		p, db := direct.place(t)
		var claims []store.Claim
		for i := range callers {
			claims = append(claims, claim(fmt.Sprint("key ", i), long))
			take(t, p, claims[i])
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(t.Context(), "UPDATE "+locksTable(direct)+" SET due=due+1"); err != nil {
			t.Fatal(err)
		}
		count := "SELECT COUNT(*) FROM information_schema.processlist WHERE db=DATABASE() AND info LIKE '%lockkit_locks%' AND id<>CONNECTION_ID()"
		if direct.driver == "pgx" {
			count = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname=current_database() AND wait_event_type='Lock'"
		}
		waiting := func() (n int) {
			if err := db.QueryRowContext(t.Context(), count).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		pool := behind.open(t)
		pool.SetMaxOpenConns(callers)
		s := newStore(t, pool, behind)
		// begin begins a call for each row, and returns a function that waits for them.
		begin := func(ctx context.Context) (wait func()) {
			var all sync.WaitGroup
			for i, c := range claims {
				all.Go(func() {
					var err error
					if i%2 == 0 {
						_, err = s.Acquire(ctx, claim(c.Key, long))
					} else {
						err = s.Release(ctx, c)
					}
					if err == nil {
						t.Error("got no error beside a locked row")
					}
				})
			}
			return all.Wait
		}

		most := 0
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			begin(ctx)()
			cancel()
			most = max(most, waiting())
		}
		// Twice the number is allowed, because a busy server is slow to end a statement.
		if most == 0 || most > 2*callers {
			t.Errorf("callers left: got %d sessions that wait at once, want 1 to %d", most, 2*callers)
		}
		testserver.Eventually(t, long/3, "no session waits", func() bool { return waiting() == 0 })
		wait := begin(t.Context())
		testserver.Eventually(t, long, "a session waits", func() bool { return waiting() > 0 })
		proxy.Down() // also for requests to cancel a statement
		wait()
		testserver.Eventually(t, long/3, "no session of a vanished process waits", func() bool { return waiting() == 0 })
	})
}

// TestMariaDB_LockedRow checks that statements that have locked the row of
// the version do not wait for a locked row.
func TestMariaDB_LockedRow(t *testing.T) {
	t.Parallel()
	notOnMySQL(t, "lock wait of a statement's own")
	server := testserver.StartMariaDB(t).NewDatabase(t)
	p, db := database{sqlstore.MySQL, "mysql", server.DSN()}.place(t)
	take(t, p, claim("key", long))
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "UPDATE lockkit_locks SET due=due+1"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Take(t.Context(), claim("key", long), version()); !errors.Is(err, casstore.ErrConflict) {
		t.Errorf("take: got %v, want %v", err, casstore.ErrConflict)
	}
	if _, err := p.Load(t.Context(), "key", casstore.Want{Current: true}); !errors.Is(err, casstore.ErrConflict) {
		t.Errorf("load: got %v, want %v", err, casstore.ErrConflict)
	}
	waits := server.Exec("SELECT variable_value FROM information_schema.global_status WHERE variable_name='INNODB_ROW_LOCK_WAITS'")
	if waits[0] != "0" {
		t.Errorf("got %q waits, want none", waits)
	}
}

func TestCheckToken(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		_, db := d.place(t)
		p := newStore(t, db, d)
		check := func(token uint64, commit bool) error {
			t.Helper()
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			err = p.CheckToken(t.Context(), tx, "order:42", token)
			if commit {
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
			}
			return err
		}
		for i, c := range []struct {
			token  uint64
			commit bool
			want   error
		}{
			{100, true, nil}, {100, true, nil}, {99, true, store.ErrLost}, {200, false, nil}, {100, true, nil}, {101, true, nil}, {100, true, store.ErrLost},
		} {
			if err := check(c.token, c.commit); !errors.Is(err, c.want) {
				t.Errorf("check %d of token %d: got %v, want %v", i, c.token, err, c.want)
			}
		}
		for what, err := range map[string]error{
			"no transaction": p.CheckToken(t.Context(), db, "order:42", 300),
			"nil":            p.CheckToken(t.Context(), nil, "order:42", 300),
			"no resource":    check300(t, p, db, ""),
			"no token":       check(0, false),
		} {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s: got %v, want %v", what, err, store.ErrInvalid)
			}
		}
	})
}

func check300(t *testing.T, p *sqlstore.Store, db *sql.DB, resource string) error {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	return p.CheckToken(t.Context(), tx, resource, 300)
}
