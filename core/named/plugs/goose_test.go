package plugs_test

import (
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"testing/fstest"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/named"
	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestGoose(t *testing.T) {
	testserver.RequirePostgres(t)
	t.Parallel()
	server := testserver.StartPostgres(t)
	t.Run("three replicas that migrate at once run each migration once", func(t *testing.T) {
		t.Parallel()
		const replicas, migrations = 3, 4
		files := fstest.MapFS{}
		for n := 1; n <= migrations; n++ {
			// Each takes a while, and cannot be run twice.
			files[fmt.Sprintf("%05d_step.sql", n)] = &fstest.MapFile{Data: fmt.Appendf(nil,
				"-- +goose Up\nSELECT pg_sleep(0.1);\nCREATE TABLE step%d (n int);\n", n)}
		}
		if err := pgstore.Migrate(t.Context(), testclient.Postgres(t, server.URL())); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		var run int
		ready := make(chan struct{})
		for range replicas {
			store, err := pgstore.New(testclient.Postgres(t, server.URL()))
			if err != nil {
				t.Fatal(err)
			}
			locks, err := core.New(store)
			if err != nil {
				t.Fatal(err)
			}
			db, err := sql.Open("pgx", server.URL())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithLocker(named.NewDB(locks, "service")))
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				<-ready
				results, err := provider.Up(t.Context())
				if err != nil {
					t.Errorf("a replica failed: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				run += len(results)
			})
		}
		close(ready)
		all.Wait()
		if run != migrations {
			t.Errorf("%d migrations were run, want %d", run, migrations)
		}
		if got := server.Exec("SELECT count(*) FROM goose_db_version WHERE version_id > 0"); len(got) != 1 || got[0] != fmt.Sprint(migrations) {
			t.Errorf("%v are noted, want %d", got, migrations)
		}
	})
}
