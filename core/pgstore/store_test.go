package pgstore_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestMain sets eight parallel tests by default, because most of them wait for time or a
// server. Tests that keep processors busy are not parallel. Otherwise a call of another
// test may get no processor time until its time limit.
func TestMain(m *testing.M) {
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		_ = flag.Set("test.parallel", "8")
	}
	goleak.VerifyTestMain(m)
}

// shared is a server for the tests that do not change the server itself. durable is such
// a server that waits for its disk, as Check demands. Each test has its own database.
var (
	shared = testserver.NewShared(func(t testing.TB) *testserver.Postgres {
		return testserver.StartPostgres(t, "max_connections = 300")
	})
	durable = testserver.NewShared(func(t testing.TB) *testserver.Postgres {
		return testserver.StartPostgres(t, "max_connections = 300", "fsync = on")
	})
)

// database returns a database of the shared server, with the schema.
func database(t testing.TB, settings ...string) *testserver.Postgres {
	t.Helper()
	return migrated(t, shared.Get(t).NewDatabase(t, settings...))
}

// start starts a server for the test alone, with the schema.
func start(t testing.TB, settings ...string) *testserver.Postgres {
	t.Helper()
	return migrated(t, testserver.StartPostgres(t, settings...))
}

func migrated(t testing.TB, server *testserver.Postgres) *testserver.Postgres {
	t.Helper()
	if err := pgstore.Migrate(t.Context(), testclient.Postgres(t, server.URL())); err != nil {
		t.Fatal(err)
	}
	return server
}

// newStore returns a Store that is closed before its pool.
func newStore(t testing.TB, pool *pgxpool.Pool, opts ...pgstore.Option) *pgstore.Store {
	t.Helper()
	s, err := pgstore.New(pool, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// transaction implements storetest.Transaction with a transaction in the database of
// the locks.
type transaction struct{ pgx.Tx }

func (x transaction) SaveRun(ctx context.Context, s store.Store, c store.Claim) error {
	return pgstore.In(x.Tx).SaveRun(ctx, s, c)
}

func (x transaction) Commit() error { return x.Tx.Commit(context.Background()) }

func (x transaction) Rollback() error { return x.Tx.Rollback(context.Background()) }

// begin returns a function that begins transactions in the database at url, on a
// separate pool.
func begin(t testing.TB, url string) func(t testing.TB, s store.Store) storetest.Transaction {
	orders := testclient.Postgres(t, url)
	return func(t testing.TB, _ store.Store) storetest.Transaction {
		tx, err := orders.BeginTx(context.Background(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
		if err != nil {
			t.Fatal(err)
		}
		return transaction{tx}
	}
}

// conformance runs the suite on the stores of two processes. Each process has one pool
// for all cases, and a Store for each case.
func conformance(t *testing.T, url string, begin func(t testing.TB, s store.Store) storetest.Transaction, connect func(t testing.TB, pool *pgxpool.Pool) store.Store) {
	t.Helper()
	pools := []*pgxpool.Pool{testclient.Postgres(t, url), testclient.Postgres(t, url)}
	storetest.Run(t, storetest.Harness{
		Begin: begin,
		New: func(t testing.TB) func() store.Store {
			n := 0
			return func() store.Store {
				n++
				return connect(t, pools[n%2])
			}
		},
		Unit: 400 * time.Millisecond,
	})
}

func plain(t testing.TB, pool *pgxpool.Pool) store.Store { return newStore(t, pool) }

func TestStore(t *testing.T) {
	t.Parallel()
	url := database(t).URL("pool_max_conns=10")
	conformance(t, url, begin(t, url), plain)
}

// TestStoreThroughPooler runs the suite through a pooler that may assign another session
// after each call. A separate connection of the Store to the server receives the
// wake-ups.
func TestStoreThroughPooler(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	testserver.RequirePgbouncer(t)
	server := database(t)
	pooler := testserver.StartPgbouncer(t, server)
	direct, err := pgx.ParseConfig(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	url := pooler.URL("pool_max_conns=10")
	conformance(t, url, begin(t, url), func(t testing.TB, pool *pgxpool.Pool) store.Store {
		return newStore(t, pool, pgstore.WithListener(direct))
	})
}

// TestStore_RequestsTwice runs the suite with each request sent twice, except acquires
// of claims that wait. A repeated claim requests the same state, and an answer is saved
// once. The database also has unusual settings for all of its sessions: one snapshot
// per transaction, asynchronous commits, other quotation and another encoding.
func TestStore_RequestsTwice(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	server := database(t,
		"default_transaction_isolation = 'serializable'", "synchronous_commit = off", "standard_conforming_strings = off",
		"backslash_quote = off", "bytea_output = 'escape'", "client_encoding = 'SQL_ASCII'", "DateStyle = 'SQL, DMY'",
		"IntervalStyle = 'sql_standard'", "TimeZone = 'America/St_Johns'")
	// A Faulty is not a Store of this package, so no transaction can save its runs.
	conformance(t, server.URL("pool_max_conns=10"), nil, func(t testing.TB, pool *pgxpool.Pool) store.Store {
		faults := new(storetest.Faults)
		faults.Hook(func(op storetest.Op, claims []store.Claim) storetest.Fault {
			// The first copy of a claim can be refused and the second granted. A waiter
			// finds this out at its next attempt, which the suite does not make.
			return storetest.Fault{Twice: op != storetest.OpAcquire || !claims[0].Wait}
		})
		t.Cleanup(faults.Wait)
		return storetest.Faulty(newStore(t, pool), faults)
	})
}
