package plugs_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/pressly/goose/v3/lock/locktesting"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/named"
	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

const migrations = 4

// steps returns migrations that take a while and cannot be run twice.
func steps() fs.FS {
	files := fstest.MapFS{}
	for n := 1; n <= migrations; n++ {
		files[fmt.Sprintf("%05d_step.sql", n)] = &fstest.MapFile{Data: fmt.Appendf(nil,
			"-- +goose Up\nSELECT pg_sleep(0.1);\nCREATE TABLE step%d (n int);\n", n)}
	}
	return files
}

// migrate is the main function of a child that migrates a database. It waits for a line
// from its parent process first, and prints the number of migrations that it has run.
func migrate(p plan) int {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, p.URL)
	if err != nil {
		panic(err)
	}
	provider, db, err := newProvider(pool, p.URL)
	if err != nil {
		panic(err)
	}
	if err := errors.Join(db.PingContext(ctx), pool.Ping(ctx)); err != nil {
		panic(err)
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return 1
	}
	results, err := provider.Up(ctx)
	if err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	fmt.Println("run", len(results))
	return 0
}

// newProvider returns a provider of migrations with a new Locker.
func newProvider(pool *pgxpool.Pool, url string) (*goose.Provider, *sql.DB, error) {
	store, err := pgstore.New(pool)
	if err != nil {
		return nil, nil, err
	}
	locks, err := core.New(store)
	if err != nil {
		return nil, nil, err
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		return nil, nil, err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, steps(), goose.WithLocker(named.NewDB(locks, "service")))
	return provider, db, err
}

func TestGoose(t *testing.T) {
	testserver.RequirePostgres(t)
	t.Parallel()
	server := testserver.StartPostgres(t)
	// Three processes migrate a database at once, and each migration runs once.
	t.Run("three processes", func(t *testing.T) {
		t.Parallel()
		if err := pgstore.Migrate(t.Context(), testclient.Postgres(t, server.URL())); err != nil {
			t.Fatal(err)
		}
		replicas := make([]*child, 3)
		for i := range replicas {
			replicas[i] = startChild(t, plan{URL: server.URL()})
		}
		for _, c := range replicas {
			c.await("ready")
		}
		for _, c := range replicas {
			c.goOn()
		}
		run := 0
		for _, c := range replicas {
			var n int
			line := c.next()
			if _, err := fmt.Sscanf(line, "run %d", &n); err != nil {
				t.Errorf("a replica says %q", line)
			}
			run += n
		}
		if run != migrations {
			t.Errorf("%d migrations were run, want %d", run, migrations)
		}
		if got := server.Exec("SELECT count(*) FROM goose_db_version WHERE version_id > 0"); len(got) != 1 || got[0] != fmt.Sprint(migrations) {
			t.Errorf("%v are noted, want %d", got, migrations)
		}
	})
	// goose's own tests of lockers pass with a DB.
	t.Run("tests of goose", func(t *testing.T) {
		t.Parallel()
		database := server.NewDatabase(t)
		pool := testclient.Postgres(t, database.URL())
		if err := pgstore.Migrate(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider {
			provider, db, err := newProvider(testclient.Postgres(t, database.URL()), database.URL())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			return provider
		})
		store, err := pgstore.New(pool)
		if err != nil {
			t.Fatal(err)
		}
		locktesting.TestConcurrentLocking(t, nil, func(t *testing.T) lock.Locker {
			return named.NewDB(process(t, store), "concurrent")
		}, 2*time.Second)
	})
}
