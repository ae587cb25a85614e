package pgstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// run begins a run in s. It returns the claim of the run, and the claim that saves its
// answer.
func run(t *testing.T, s store.Store) (c, last store.Claim) {
	t.Helper()
	c = claimed()
	c.Record = &store.Record{Value: []byte("begun"), Retain: time.Minute}
	acquire(t, s, c)
	last = c
	last.Record = &store.Record{Value: []byte("answer"), Attempt: 1, Done: true, Retain: time.Minute}
	return c, last
}

// answered fails the test unless the field Done of the run of c is want.
func answered(t *testing.T, s store.Store, c store.Claim, want bool) {
	t.Helper()
	state, err := s.(store.Inspector).Look(t.Context(), c.Key)
	if err != nil || state.Run == nil || state.Run.Done != want {
		t.Errorf("got %+v and %v, want a run that is done: %v", state.Run, err, want)
	}
}

// TestIn checks that a Commit that cannot save an answer is refused before anything is
// written.
func TestIn(t *testing.T) {
	t.Parallel()
	server := database(t)
	pool := testclient.Postgres(t, server.URL())
	s := newStore(t, pool)
	other := testclient.Postgres(t, database(t).URL())
	bare := testclient.Postgres(t, shared.Get(t).NewDatabase(t).URL())
	begun := func(t *testing.T, from *pgxpool.Pool, level pgx.TxIsoLevel) pgx.Tx {
		tx, err := from.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		return tx
	}
	for name, c := range map[string]struct {
		store store.Store
		tx    func(t *testing.T) pgx.Tx
		want  error
		words string
	}{
		"no transaction": {s, func(*testing.T) pgx.Tx { return nil }, store.ErrInvalid, "the transaction is nil"},
		"a transaction that is over": {s, func(t *testing.T) pgx.Tx {
			tx := begun(t, pool, pgx.ReadCommitted)
			if _, err := tx.Exec(t.Context(), "COMMIT"); err != nil {
				t.Fatal(err)
			}
			return tx
		}, store.ErrInvalid, "no open transaction"},
		"a transaction that was rolled back": {s, func(t *testing.T) pgx.Tx {
			tx := begun(t, pool, pgx.ReadCommitted)
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			return tx
		}, store.ErrInvalid, "no open transaction"},
		"one snapshot":              {s, func(t *testing.T) pgx.Tx { return begun(t, pool, pgx.RepeatableRead) }, store.ErrUnsupported, "READ COMMITTED"},
		"serializable":              {s, func(t *testing.T) pgx.Tx { return begun(t, pool, pgx.Serializable) }, store.ErrUnsupported, "READ COMMITTED"},
		"another database":          {s, func(t *testing.T) pgx.Tx { return begun(t, other, pgx.ReadCommitted) }, store.ErrUnsupported, "another database"},
		"a database without tables": {s, func(t *testing.T) pgx.Tx { return begun(t, bare, pgx.ReadCommitted) }, store.ErrUnsupported, "not in the database"},
		"another store":             {memstore.New(), func(t *testing.T) pgx.Tx { return begun(t, pool, pgx.ReadCommitted) }, store.ErrUnsupported, "memstore"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun, last := run(t, c.store)
			err := pgstore.In(c.tx(t)).SaveRun(t.Context(), c.store, last)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.words) {
				t.Errorf("got %v, want %v and %q", err, c.want, c.words)
			}
			answered(t, c.store, begun, false)
		})
	}
}

// TestIn_PoolOfOne checks that a Commit needs no connection except that of the caller's
// transaction.
func TestIn_PoolOfOne(t *testing.T) {
	t.Parallel()
	pool := testclient.Postgres(t, database(t).URL("pool_max_conns=1"))
	s := newStore(t, pool)
	begun, last := run(t, s)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if err := pgstore.In(tx).SaveRun(t.Context(), s, last); err != nil {
		t.Fatalf("got %v, want nil", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	answered(t, s, begun, true)
}

// TestIn_WaitsForDisk checks that SaveRun changes synchronous_commit from off to on
// until the end of the transaction. The COMMIT of an answer then waits for the disk.
func TestIn_WaitsForDisk(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ server, caller, want string }{
		"off at the server":        {"off", "", "on"},
		"off by the caller":        {"on", "off", "on"},
		"on at the server":         {"on", "", "on"},
		"local at the server":      {"local", "", "local"},
		"stronger than the server": {"off", "remote_apply", "remote_apply"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := testclient.Postgres(t, database(t, "synchronous_commit = "+c.server).URL("pool_max_conns=1"))
			s := newStore(t, pool)
			begun, last := run(t, s)
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(context.Background())
			if c.caller != "" {
				if _, err := tx.Exec(t.Context(), "SET LOCAL synchronous_commit = "+c.caller); err != nil {
					t.Fatal(err)
				}
			}
			if err := pgstore.In(tx).SaveRun(t.Context(), s, last); err != nil {
				t.Fatal(err)
			}
			var got string
			if err := tx.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&got); err != nil || got != c.want {
				t.Errorf("in the transaction: got %q, %v, want %q", got, err, c.want)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := pool.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&got); err != nil || got != c.server {
				t.Errorf("after the transaction: got %q, %v, want %q", got, err, c.server)
			}
			answered(t, s, begun, true)
		})
	}
}

// TestIn_OtherHolds checks that an open transaction does not delay the extension of
// other holds of the process. The transaction locks the row of its run by a Commit, and
// later the row of a usual hold. Even over a slow network the other holds are extended
// together.
func TestIn_OtherHolds(t *testing.T) {
	t.Parallel()
	r := newRig(t, database(t))
	begun, last := run(t, r.direct)
	claims := []store.Claim{begun}
	claims[0].Record = nil
	for range 63 {
		c := claimed()
		acquire(t, r.direct, c)
		claims = append(claims, c)
	}
	tx, err := testclient.Postgres(t, r.server.URL()).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	r.proxy.Impair(testserver.Impairment{Delay: 2 * time.Millisecond}) // in each direction
	for locked, lock := range []func() error{
		func() error { return pgstore.In(tx).SaveRun(t.Context(), r.direct, last) },
		func() error {
			_, err := tx.Exec(t.Context(), "SELECT FROM lockkit.locks WHERE name = $1 FOR UPDATE", []byte(claims[1].Key))
			return err
		},
	} {
		if err := lock(); err != nil {
			t.Fatal(err)
		}
		r.proxy.Forget()
		for i, x := range r.store.Extend(t.Context(), claims) {
			if (x.Err != nil) != (i <= locked) || errors.Is(x.Err, store.ErrLost) {
				t.Errorf("%d locked rows, hold %d: got %v, want the others extended", locked+1, i, x.Err)
			}
		}
		if n := len(r.proxy.Requests()); n > 50 {
			t.Errorf("%d locked rows: got %d requests, want 50 at most", locked+1, n)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, x := range r.store.Extend(t.Context(), claims) {
		if x.Err != nil {
			t.Errorf("after a rollback, hold %d: got %v, want nil", i, x.Err)
		}
	}
}

// TestIn_LogicalReplica checks that Commit is refused on a logical replica. The replica
// has the ID of its origin. An answer that is saved in the replica does not reach the
// origin.
func TestIn_LogicalReplica(t *testing.T) {
	t.Parallel()
	settings := []string{"wal_level = logical", "max_worker_processes = 8"}
	origin, replica := start(t, settings...), start(t, settings...)
	origin.Exec("CREATE PUBLICATION everything FOR ALL TABLES")
	replica.Exec("TRUNCATE lockkit.version")
	replica.Exec("CREATE SUBSCRIPTION everything CONNECTION '" + origin.URL() + "' PUBLICATION everything")
	id := origin.Exec("SELECT id FROM lockkit.version")[0]
	testserver.Eventually(t, patience, "the replica has the ID of its origin", func() bool {
		return slices.Equal(replica.Exec("SELECT id FROM lockkit.version"), []string{id})
	})
	replica.Exec("CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA lockkit TO app; GRANT SELECT, UPDATE ON lockkit.locks, lockkit.version TO app")
	s := newStore(t, testclient.Postgres(t, origin.URL()))
	begun, last := run(t, s)
	testserver.Eventually(t, patience, "the replica has the run", func() bool {
		return replica.Exec("SELECT count(*) FROM lockkit.locks")[0] == "1"
	})
	tx, err := testclient.Postgres(t, replica.URL(), func(c *pgxpool.Config) { c.ConnConfig.User = "app" }).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if err := pgstore.In(tx).SaveRun(t.Context(), s, last); !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "logical replica") {
		t.Errorf("got %v, want %v of a logical replica", err, store.ErrUnsupported)
	}
	answered(t, s, begun, false)
	if err := newStore(t, testclient.Postgres(t, replica.URL())).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "DROP SUBSCRIPTION") {
		t.Errorf("Check of the replica: got %v, want advice about its subscription", err)
	}
}

// TestIn_RoundTrips counts the round trips of a Commit. It checks that the answer is
// visible after the COMMIT, and not before.
func TestIn_RoundTrips(t *testing.T) {
	t.Parallel()
	server := database(t)
	proxy := testserver.NewPostgresProxy(t, server.Addr)
	s := newStore(t, testclient.Postgres(t, server.URL()))
	conn, err := pgx.Connect(t.Context(), server.URLAt(proxy.Addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for n := range 2 {
		begun, last := run(t, s)
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		proxy.Forget()
		if err := pgstore.In(tx).SaveRun(t.Context(), s, last); err != nil {
			t.Fatal(err)
		}
		// Two round trips prove that the transaction is open, and one identifies the
		// database. One locks the row, and one writes the row.
		if got := proxy.Count(testserver.Match{}); got != 5 {
			t.Errorf("commit %d: %d round trips, want 5: %q", n, got, proxy.Statements())
		}
		answered(t, s, begun, false)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		answered(t, s, begun, true)
		again := nested(begun)
		if g := acquire(t, s, again); !g.Record.Done || string(g.Record.Value) != "answer" {
			t.Errorf("got %+v, want the answer", g.Record)
		}
	}
}

// TestWakeUps_Secret checks that a wake-up does not show which claim waits for which
// key. Every user of the database can listen.
func TestWakeUps_Secret(t *testing.T) {
	t.Parallel()
	server := database(t)
	listens, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listens.Close(context.Background()) })
	if _, err := listens.Exec(t.Context(), "LISTEN lockkit"); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, testclient.Postgres(t, server.URL()))
	c := claimed()
	w := exclusive(c.Key)
	w.Wait = true
	acquire(t, s, c)
	wantIs(t, "acquire", second(s.Acquire(t.Context(), w)), store.ErrBusy)
	release(t, s, c)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n, err := listens.WaitForNotification(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for what, secret := range map[string]string{"lease": w.Lease, "lease in hex": sql(w.Lease), "key": c.Key, "key in hex": sql(c.Key)} {
		if strings.Contains(n.Payload, secret) {
			t.Errorf("%q has the %s", n.Payload, what)
		}
	}
}
