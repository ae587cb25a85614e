package sqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
)

// beside combines a Store with the pool for the orders in its database, which orders
// opens.
type beside struct {
	*sqlstore.Store
	orders func() *sql.DB
}

// transaction implements storetest.Transaction on the orders.
type transaction struct{ *sql.Tx }

func (x transaction) SaveRun(ctx context.Context, s store.Store, c store.Claim) error {
	return sqlstore.In(x.Tx).SaveRun(ctx, s, c)
}

// TestContract runs the suite of stores. In make test, the suite of package pgstore
// checks the statements on PostgreSQL, which are the same.
func TestContract(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		if d.driver == "pgx" {
			tally.ProofOrMatrix(t)
		}
		var pools []*sql.DB
		var orders func() *sql.DB
		if d.driver != "sqlite" {
			pools, orders = d.processes(t)
		}
		var alone sync.Mutex
		files := t.TempDir()
		storetest.Run(t, storetest.Harness{
			Begin: func(t testing.TB, s store.Store) storetest.Transaction {
				tx, err := s.(beside).orders().BeginTx(context.Background(), nil)
				if err != nil {
					t.Fatal(err)
				}
				return transaction{tx}
			},
			New: func(t testing.TB) func() store.Store {
				d, pools, orders := d, pools, orders
				// Otherwise all cases would wait for one file, and for the disk.
				if d.driver == "sqlite" {
					// These cases use all of a processor.
					if strings.Contains(t.Name(), "/concurrency/") {
						alone.Lock()
						t.Cleanup(alone.Unlock)
					}
					d.dsn = "file:" + filepath.Join(files, rand.Text()) + "?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
					pools, orders = d.processes(t)
				}
				n := 0
				return func() store.Store {
					n++
					return beside{newStore(t, pools[n%2], d), orders}
				}
			},
			Unit:    400 * time.Millisecond,
			Without: []storetest.Feature{storetest.Watching},
		})
	})
}

// processes creates the tables. It returns two pools, like those of two processes, and a
// function that creates the table of the orders and returns a pool for it.
func (d database) processes(t testing.TB) (pools []*sql.DB, orders func() *sql.DB) {
	t.Helper()
	_, first := d.place(t)
	pools = []*sql.DB{first, d.open(t)}
	for _, db := range pools {
		db.SetMaxIdleConns(64) // by default database/sql keeps 2
	}
	return pools, sync.OnceValue(func() *sql.DB { return d.orders(t) })
}
