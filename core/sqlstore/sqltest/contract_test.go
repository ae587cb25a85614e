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

	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
)

// beside combines a Store with the pool for the orders in its database.
type beside struct {
	*sqlstore.Store
	orders *sql.DB
}

// transaction implements storetest.Transaction on the orders.
type transaction struct{ *sql.Tx }

func (x transaction) SaveRun(ctx context.Context, s store.Store, c store.Claim) error {
	return sqlstore.In(x.Tx).SaveRun(ctx, s, c)
}

func TestContract(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		d.place(t) // creates the tables
		var alone sync.Mutex
		files := t.TempDir()
		storetest.Run(t, storetest.Harness{
			Begin: func(t testing.TB, s store.Store) storetest.Transaction {
				tx, err := s.(beside).orders.BeginTx(context.Background(), nil)
				if err != nil {
					t.Fatal(err)
				}
				return transaction{tx}
			},
			New: func(t testing.TB) func() store.Store {
				d := d
				if d.driver == "sqlite" { // otherwise all cases would wait for one file, and for the disk
					if strings.Contains(t.Name(), "/concurrency/") { // these cases use all of a processor
						alone.Lock()
						t.Cleanup(alone.Unlock)
					}
					d.dsn = "file:" + filepath.Join(files, rand.Text()) + "?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
				}
				return func() store.Store { return beside{d.store(t), d.orders(t)} }
			},
			Unit:    400 * time.Millisecond,
			Without: []storetest.Feature{storetest.Watching},
		})
	})
}
