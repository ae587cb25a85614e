package sqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"flag"
	mathrand "math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/sqlstore/internal/rows"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestMain runs eight tests in parallel by default, because most of them wait for time
// or a server.
func TestMain(m *testing.M) {
	if plan := os.Getenv(childEnv); plan != "" {
		os.Exit(childMain(plan))
	}
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		_ = flag.Set("test.parallel", "8")
	}
	goleak.VerifyTestMain(m)
}

var (
	mariaDB = testserver.NewShared(func(t testing.TB) *testserver.MariaDB {
		return testserver.StartMariaDB(t, "max_connections = 300", "max_allowed_packet = 16M")
	})
	postgres = testserver.NewShared(func(t testing.TB) *testserver.Postgres {
		return testserver.StartPostgres(t, "max_connections = 300")
	})
	// durable is a PostgreSQL server that waits for its disk, as Check demands.
	durable = testserver.NewShared(func(t testing.TB) *testserver.Postgres {
		return testserver.StartPostgres(t, "fsync = on")
	})
)

// database is an empty database of one test.
type database struct {
	dialect sqlstore.Dialect
	driver  string
	dsn     string
}

func everywhere(t *testing.T, fn func(t *testing.T, d database)) {
	t.Helper()
	for name, make := range map[string]func(t *testing.T) database{
		"mariadb": func(t *testing.T) database { return onMariaDB(t) },
		"postgres": func(t *testing.T) database {
			return database{sqlstore.PostgreSQL, "pgx", postgres.Get(t).NewDatabase(t).URL()}
		},
		"sqlite": func(t *testing.T) database {
			file := filepath.Join(t.TempDir(), "locks.db")
			return database{sqlstore.SQLite, "sqlite", "file:" + file + "?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fn(t, make(t))
		})
	}
}

func onMariaDB(t *testing.T, parameters ...string) database {
	t.Helper()
	return database{sqlstore.MySQL, "mysql", mariaDB.Get(t).NewDatabase(t).DSN(parameters...)}
}

// notOnMySQL skips the test if the server is MySQL, which lacks the feature want of
// MariaDB.
func notOnMySQL(t *testing.T, want string) {
	t.Helper()
	if testserver.IsMySQL() {
		t.Skip("MySQL has no " + want)
	}
}

// isolation returns a parameter of the DSN for the isolation level. The old name of the
// variable works on each MariaDB, and the new one on MySQL.
func isolation(level string) string {
	name := "tx_isolation"
	if testserver.IsMySQL() {
		name = "transaction_isolation"
	}
	return name + "=" + url.QueryEscape("'"+level+"'")
}

// open returns a new pool on the database, like the pool of a process.
func (d database) open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.driver, d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// place creates the tables, and returns a Place on the database.
func (d database) place(t testing.TB) (*rows.Place, *sql.DB) {
	t.Helper()
	db := d.open(t)
	if err := sqlstore.Migrate(context.Background(), db, d.dialect); err != nil {
		t.Fatal(err)
	}
	return rows.New(db, d.dialect.Dialect), db
}

func (d database) store(t testing.TB) *sqlstore.Store {
	t.Helper()
	_, db := d.place(t)
	return newStore(t, db, d)
}

func newStore(t testing.TB, db *sql.DB, d database) *sqlstore.Store {
	t.Helper()
	s, err := sqlstore.New(db, d.dialect)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// long is a TTL that outlives a test.
const long = time.Minute

// claim returns a usual claim of a new owner.
func claim(key string, ttl time.Duration) store.Claim {
	return store.Claim{Key: key, Owner: rand.Text(), Lease: rand.Text(), Weight: store.All, Limit: store.All, TTL: ttl}
}

// version returns an unused version.
func version() int64 { return mathrand.Int64N(1<<62) + 1 }

func take(t *testing.T, p *rows.Place, c store.Claim) (token uint64, ok bool) {
	t.Helper()
	token, ok, err := p.Take(t.Context(), c, version())
	if err != nil {
		t.Fatal(err)
	}
	if ok != (token > 0) {
		t.Fatalf("got token %d, granted %v", token, ok)
	}
	return token, ok
}

func give(t *testing.T, p *rows.Place, c store.Claim) bool {
	t.Helper()
	ok, err := p.Give(t.Context(), c, version())
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func load(t *testing.T, p *rows.Place, key string, value bool) casstore.Entry {
	t.Helper()
	e, err := p.Load(t.Context(), key, casstore.Want{Value: value})
	if err != nil {
		t.Fatal(err)
	}
	current, err := p.Load(t.Context(), key, casstore.Want{Value: value, Current: true})
	if err != nil {
		t.Fatal(err)
	}
	if current.Version != e.Version {
		t.Fatalf("got version %d as the newest, %d as any", current.Version, e.Version)
	}
	return e
}

// save replaces old by e, even if old was loaded long ago.
func save(t *testing.T, p *rows.Place, key string, old, e casstore.Entry) bool {
	t.Helper()
	if e.Version == old.Version {
		e.Version = version()
	}
	for {
		ok, err := p.Save(t.Context(), key, old, e)
		if err != nil {
			t.Fatal(err)
		}
		now := load(t, p, key, false)
		if ok || now.Version != old.Version || now.Floor != old.Floor || now.Now.Sub(old.Now) < time.Second {
			return ok
		}
		old.Now = now.Now
	}
}
