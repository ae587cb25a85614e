package sqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// faulty is a database that can also be reached through a proxy.
type faulty struct {
	direct, behind      database
	proxy               *testserver.Proxy
	inserting, updating testserver.Match
}

// TestFaults loses, delays and doubles messages. It checks that the store reports the
// right outcome or an unknown outcome.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T) func(t *testing.T) *faulty{
		"mariadb": func(t *testing.T) func(t *testing.T) *faulty {
			common := mariaDB.Get(t)
			return func(t *testing.T) *faulty {
				// A claim does not wait for a locked row. So its reply could be a refusal
				// while another case migrates the same tables.
				server := common.NewDatabase(t)
				proxy := testserver.NewMySQLProxy(t, server.Addr)
				return &faulty{
					database{sqlstore.MySQL, "mysql", server.DSN()}, database{sqlstore.MySQL, "mysql", server.DSNAt(proxy.Addr)}, proxy,
					testserver.Statement("INSERT INTO lockkit_locks"), testserver.Statement("UPDATE lockkit_locks"),
				}
			}
		},
		"postgres": func(t *testing.T) func(t *testing.T) *faulty {
			server := postgres.Get(t).NewDatabase(t)
			return func(t *testing.T) *faulty {
				proxy := testserver.NewPostgresProxy(t, server.Addr)
				// In the simple protocol each request has the text of its statement, even
				// if pgx would prepare it.
				behind := server.URLAt(proxy.Addr, "default_query_exec_mode=simple_protocol")
				return &faulty{
					database{sqlstore.PostgreSQL, "pgx", server.URL()}, database{sqlstore.PostgreSQL, "pgx", behind}, proxy,
					testserver.Statement("INSERT INTO lockkit.locks"), testserver.Statement("UPDATE lockkit.locks"),
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults(t, begin(t))
		})
	}
}

// shared returns a claim that can share its key with other claims. Such a claim needs
// Load and Save.
func shared(key string) store.Claim {
	c := claim(key, long)
	c.Weight = 1
	return c
}

func acquire(t *testing.T, s *sqlstore.Store, c store.Claim) store.Grant {
	t.Helper()
	g, err := s.Acquire(t.Context(), c)
	if err != nil {
		t.Fatalf("acquire: got %v, want a grant", err)
	}
	return g
}

func release(t *testing.T, s *sqlstore.Store, c store.Claim) {
	t.Helper()
	if err := s.Release(t.Context(), c); err != nil {
		t.Fatalf("release: got %v, want nil", err)
	}
}

func holders(t *testing.T, s *sqlstore.Store, key string) int {
	t.Helper()
	state, err := s.Look(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return len(state.Holds)
}

// isUnknown reports whether err leaves the outcome of an operation unknown.
func isUnknown(err error) bool {
	if err == nil {
		return false
	}
	for _, class := range []error{store.ErrUnavailable, store.ErrBusy, store.ErrLost, store.ErrInvalid, store.ErrUnsupported} {
		if errors.Is(err, class) {
			return false
		}
	}
	return true
}

func faults(t *testing.T, begin func(t *testing.T) *faulty) {
	for name, make := range map[string]func(key string) store.Claim{
		"usual":  func(key string) store.Claim { return claim(key, long) },
		"shared": shared,
	} {
		for lost, action := range map[string]testserver.Action{
			"a reply is lost": testserver.CloseReply, "a reply does not come": testserver.DropReply,
			"half of a reply": testserver.CutReply, "a reply is late": testserver.HoldReply,
		} {
			t.Run(lost+" "+name, func(t *testing.T) {
				t.Parallel()
				f, key := begin(t), rand.Text()
				s, sound := f.behind.store(t), f.direct.store(t)
				c := make(key)
				fault := f.proxy.Inject(f.inserting, action)
				if _, err := s.Acquire(t.Context(), c); !isUnknown(err) {
					t.Errorf("acquire: got %v, want an unknown outcome", err)
				}
				fault.AwaitAnswer(t)
				fault.Deliver()
				if n := holders(t, sound, key); n != 1 {
					t.Errorf("got %d holds, want 1", n)
				}
				eventually(t, func() error { // the same claim again changes nothing
					_, err := s.Acquire(t.Context(), c)
					return err
				})
				fault = f.proxy.Inject(testserver.Statement("version="), action)
				if err := s.Extend(t.Context(), []store.Claim{c})[0].Err; !isUnknown(err) {
					t.Errorf("extend: got %v, want an unknown outcome", err)
				}
				fault.AwaitAnswer(t)
				fault.Deliver()
				eventually(t, func() error { return s.Extend(t.Context(), []store.Claim{c})[0].Err })
				fault = f.proxy.Inject(f.updating, action)
				if err := s.Release(t.Context(), c); !isUnknown(err) {
					t.Errorf("release: got %v, want an unknown outcome", err)
				}
				fault.AwaitAnswer(t)
				fault.Deliver()
				if err := s.Release(t.Context(), c); err != nil && !errors.Is(err, store.ErrLost) {
					t.Errorf("a second release: got %v, want nil or %v", err, store.ErrLost)
				}
				if n := holders(t, sound, key); n != 0 {
					t.Errorf("got %d holds, want none", n)
				}
				acquire(t, sound, claim(key, long)) // a late reply concerns an earlier hold
				if n := holders(t, s, key); n != 1 {
					t.Errorf("got %d holds, want 1", n)
				}
			})
		}
		t.Run("a request is lost "+name, func(t *testing.T) {
			t.Parallel()
			f, key := begin(t), rand.Text()
			s := f.behind.store(t)
			f.proxy.Inject(f.inserting, testserver.CloseRequest)
			if _, err := s.Acquire(t.Context(), make(key)); !isUnknown(err) {
				t.Errorf("got %v, want an unknown outcome", err)
			}
			if n := holders(t, f.direct.store(t), key); n != 0 {
				t.Errorf("got %d holds, want none", n)
			}
		})
		t.Run("a release is late "+name, func(t *testing.T) {
			t.Parallel()
			f, key := begin(t), rand.Text()
			s, sound := f.behind.store(t), f.direct.store(t)
			c, next := make(key), claim(key, long)
			acquire(t, s, c)
			fault := f.proxy.Inject(f.updating, testserver.HoldRequest)
			if err := s.Release(t.Context(), c); !isUnknown(err) {
				t.Errorf("release: got %v, want an unknown outcome", err)
			}
			release(t, sound, c)
			acquire(t, sound, next)
			fault.Deliver()
			fault.AwaitAnswer(t)
			release(t, sound, next) // next still holds the key
		})
		t.Run("a request is doubled "+name, func(t *testing.T) {
			t.Parallel()
			f, key := begin(t), rand.Text()
			s := f.behind.store(t)
			c := make(key)
			fault := f.proxy.Inject(f.inserting, testserver.DoubleRequest)
			acquire(t, s, c)
			fault.AwaitAnswer(t)
			fault = f.proxy.Inject(f.updating, testserver.DoubleRequest)
			release(t, s, c)
			fault.AwaitAnswer(t)
			acquire(t, s, claim(key, long))
		})
	}
	t.Run("a caller leaves", func(t *testing.T) {
		t.Parallel()
		for _, cause := range []error{errors.New("own"), store.ErrUnavailable, store.ErrLost, store.ErrBusy} {
			f, key := begin(t), rand.Text()
			s := f.behind.store(t)
			fault := f.proxy.Inject(f.inserting, testserver.HoldRequest)
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-fault.Fired()
				cancel(cause)
			}()
			if _, err := s.Acquire(ctx, claim(key, long)); !isUnknown(err) || !strings.Contains(err.Error(), cause.Error()) {
				t.Errorf("a cause %v: got %v, want an unknown outcome that names it", cause, err)
			}
			fault.Deliver()
			fault.AwaitAnswer(t)
			if n := holders(t, f.direct.store(t), key); n != 1 {
				t.Errorf("got %d holds, want the statement to take effect later", n)
			}
			if _, err := s.Acquire(ctx, claim("other", long)); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("with a context that is done: got %v, want %v", err, store.ErrUnavailable)
			}
		}
	})
	t.Run("a server that does not answer", func(t *testing.T) {
		t.Parallel()
		f, key := begin(t), rand.Text()
		s := f.behind.store(t)
		acquire(t, s, claim("warm", long))
		f.proxy.Partition()
		defer f.proxy.Heal()
		begun := time.Now()
		_, err := s.Acquire(t.Context(), claim(key, long))
		if err == nil || errors.Is(err, store.ErrBusy) {
			t.Errorf("got %v, want an error of the server", err)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("got an error after %v, want about 2s", took)
		}
	})
	t.Run("a server that is gone", func(t *testing.T) {
		t.Parallel()
		f, key := begin(t), rand.Text()
		f.direct.place(t)
		s := newStore(t, f.behind.open(t), f.behind)
		f.proxy.Down()
		if _, err := s.Acquire(t.Context(), claim(key, long)); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("got %v, want %v", err, store.ErrUnavailable)
		}
		f.proxy.Up()
		eventually(t, func() error {
			_, err := s.Acquire(t.Context(), claim(key, long))
			return err
		})
	})
}

func eventually(t *testing.T, fn func() error) {
	t.Helper()
	var err error
	for begun := time.Now(); time.Since(begun) < 30*time.Second; time.Sleep(20 * time.Millisecond) {
		if err = fn(); err == nil {
			return
		}
	}
	t.Fatalf("got %v after 30s, want nil", err)
}

// TestMariaDB_Killed checks that a server that was killed and restarted still has a
// granted lock.
func TestMariaDB_Killed(t *testing.T) {
	t.Parallel()
	server := testserver.StartMariaDB(t)
	s := database{sqlstore.MySQL, "mysql", server.NewDatabase(t).DSN()}.store(t)
	c := claim("key", long)
	acquire(t, s, c)
	server.Kill()
	if _, err := s.Acquire(t.Context(), claim("other", long)); err == nil || errors.Is(err, store.ErrBusy) {
		t.Errorf("without a server: got %v, want an error of the server", err)
	}
	server.Restart()
	eventually(t, func() error {
		_, err := s.Acquire(t.Context(), claim("key", long))
		if errors.Is(err, store.ErrBusy) {
			return nil
		}
		if err == nil {
			t.Fatal("got a grant of a key that is held, want busy")
		}
		return err
	})
	eventually(t, func() error { return s.Release(t.Context(), c) })
}

// TestErrors checks that the error of an acquire names its cause or the remedy.
func TestErrors(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		db := d.open(t)
		for _, c := range []struct {
			why   string
			setUp func() *sql.DB
		}{
			{"call Migrate", func() *sql.DB { return db }},
			{"of a newer version", func() *sql.DB {
				d.place(t)
				setVersion(t, db, d, 1_000)
				return db
			}},
			{"are in use: give the locks", func() *sql.DB {
				setVersion(t, db, d, 7)
				one := d.open(t)
				one.SetMaxOpenConns(1)
				tx, err := one.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tx.Rollback() })
				return one
			}},
		} {
			db := c.setUp()
			for name, claim := range map[string]store.Claim{"usual": claim("key", long), "shared": shared("key")} {
				s := newStore(t, db, d)
				if _, err := s.Acquire(t.Context(), claim); err == nil || !strings.Contains(err.Error(), c.why) {
					t.Errorf("%s: got %v, want an error with %q", name, err, c.why)
				}
			}
		}
	})
}

func setVersion(t *testing.T, db *sql.DB, d database, v int) {
	t.Helper()
	table := "lockkit_version"
	if d.driver == "pgx" {
		table = "lockkit.version"
	}
	if _, err := db.ExecContext(t.Context(), fmt.Sprintf("UPDATE %s SET version=%d", table, v)); err != nil {
		t.Fatal(err)
	}
}

func TestNew_Invalid(t *testing.T) {
	t.Parallel()
	db := database{driver: "sqlite", dsn: ":memory:"}.open(t)
	for name, err := range map[string]error{
		"no db":              second(sqlstore.New(nil, sqlstore.SQLite)),
		"no dialect":         second(sqlstore.New(db, sqlstore.Dialect{})),
		"migrate no db":      sqlstore.Migrate(t.Context(), nil, sqlstore.SQLite),
		"migrate no dialect": sqlstore.Migrate(t.Context(), db, sqlstore.Dialect{}),
	} {
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: got %v, want %v", name, err, store.ErrInvalid)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestWrongDialect checks a Store with the dialect of another database. Acquire fails,
// and Check names the dialect.
func TestWrongDialect(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		_, db := d.place(t)
		for _, other := range []sqlstore.Dialect{sqlstore.MySQL, sqlstore.PostgreSQL, sqlstore.SQLite} {
			if other == d.dialect {
				continue
			}
			t.Run(fmt.Sprint("as ", other.Name()), func(t *testing.T) {
				d := d
				d.dialect = other
				s := newStore(t, db, d)
				if _, err := s.Acquire(t.Context(), claim("key", long)); !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("got %v, want %v", err, store.ErrUnavailable)
				}
				unfit(t, s, "as those of "+other.Name())
			})
		}
	})
}
