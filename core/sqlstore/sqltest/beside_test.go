package sqltest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
)

func newPgstore(t testing.TB, pool *pgxpool.Pool, opts ...pgstore.Option) *pgstore.Store {
	t.Helper()
	s, err := pgstore.New(pool, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// pgxTransaction implements storetest.Transaction on a transaction of pgx.
type pgxTransaction struct{ pgx.Tx }

func (x pgxTransaction) SaveRun(ctx context.Context, s store.Store, c store.Claim) error {
	return pgstore.In(x.Tx).SaveRun(ctx, s, c)
}

func (x pgxTransaction) Commit() error { return x.Tx.Commit(context.Background()) }

func (x pgxTransaction) Rollback() error { return x.Tx.Rollback(context.Background()) }

// onBoth returns a database with the tables that both stores use, and a pool of pgx.
func onBoth(t *testing.T) (database, *pgxpool.Pool) {
	t.Helper()
	d := database{sqlstore.PostgreSQL, "pgx", postgres.Get(t).NewDatabase(t).URL()}
	pool, err := pgxpool.New(t.Context(), d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := pgstore.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return d, pool
}

// TestContract_BesidePgstore checks that the stores of pgx and of database/sql use the
// same tables and exclude each other. In each case the callers use the two stores in
// turn.
func TestContract_BesidePgstore(t *testing.T) {
	tally.ProofOrMatrix(t)
	t.Parallel()
	for name, first := range map[string]int{"pgx first": 0, "sql first": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, pool := onBoth(t)
			orders := d.orders(t)
			_, db := d.place(t)
			db.SetMaxIdleConns(64) // by default database/sql keeps 2
			storetest.Run(t, storetest.Harness{
				Begin: func(t testing.TB, s store.Store) storetest.Transaction {
					if _, ok := s.(*pgstore.Store); ok {
						tx, err := pool.Begin(context.Background())
						if err != nil {
							t.Fatal(err)
						}
						return pgxTransaction{tx}
					}
					tx, err := orders.BeginTx(context.Background(), nil)
					if err != nil {
						t.Fatal(err)
					}
					return transaction{tx}
				},
				New: func(t testing.TB) func() store.Store {
					n := first
					return func() store.Store {
						if n++; n%2 == 0 {
							return newStore(t, db, d)
						}
						return newPgstore(t, pool, pgstore.WithoutWakeUps())
					}
				},
				Unit:    400 * time.Millisecond,
				Without: []storetest.Feature{storetest.Watching},
			})
		})
	}
}

// TestBesidePgstore checks that each store sees and ends the holds of the other store,
// and that tokens grow from one store to the other.
func TestBesidePgstore(t *testing.T) {
	t.Parallel()
	d, pool := onBoth(t)
	bySQL, byPgx := d.store(t), newPgstore(t, pool, pgstore.WithoutWakeUps())
	for name, c := range map[string]struct{ first, second store.Store }{
		"pgx first": {byPgx, bySQL}, "sql first": {bySQL, byPgx},
	} {
		for _, weight := range []int64{store.All, 1} {
			held, next := claim(name, long), claim(name, long)
			held.Weight = weight
			before, err := c.first.Acquire(t.Context(), held)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.second.Acquire(t.Context(), next); !errors.Is(err, store.ErrBusy) {
				t.Errorf("%s, weight %d: got %v, want %v", name, weight, err, store.ErrBusy)
			}
			if err := c.second.Extend(t.Context(), []store.Claim{held})[0].Err; err != nil {
				t.Errorf("%s, weight %d: extend: got %v, want nil", name, weight, err)
			}
			if err := c.second.Release(t.Context(), held); err != nil {
				t.Errorf("%s, weight %d: release: got %v, want nil", name, weight, err)
			}
			if err := c.first.Release(t.Context(), held); !errors.Is(err, store.ErrLost) {
				t.Errorf("%s, weight %d: a second release: got %v, want %v", name, weight, err, store.ErrLost)
			}
			after, err := c.second.Acquire(t.Context(), next)
			if err != nil || after.Token < before.Token+store.TokenStep {
				t.Errorf("%s, weight %d: got token %d after %d, and %v", name, weight, after.Token, before.Token, err)
			}
			if err := c.first.Release(t.Context(), next); err != nil {
				t.Errorf("%s, weight %d: release: got %v, want nil", name, weight, err)
			}
		}
	}
}

// TestPostgreSQL_WakeUps checks that a pgstore's waiter is woken by releases, revokes
// and commits of a sqlstore.
func TestPostgreSQL_WakeUps(t *testing.T) {
	t.Parallel()
	d, pool := onBoth(t)
	s, waits := d.store(t), newPgstore(t, pool)
	orders := d.orders(t)
	for name, free := range map[string]func(c store.Claim) error{
		"release": func(c store.Claim) error { return s.Release(t.Context(), c) },
		"revoke":  func(c store.Claim) error { return s.Revoke(t.Context(), c.Key, store.HoldID(c.Lease), 0) },
		"commit": func(c store.Claim) error {
			tx, err := orders.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			c.Record = &store.Record{Value: []byte("answer"), Attempt: 1, Done: true, Retain: long}
			return errors.Join(sqlstore.In(tx).SaveRun(t.Context(), s, c), tx.Commit())
		},
	} {
		c, w := claim(name, long), claim(name, long)
		c.Record = &store.Record{Value: []byte("begun"), Retain: long}
		w.Wait = true
		if _, err := s.Acquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		c.Record = nil
		if _, err := waits.Acquire(t.Context(), w); !errors.Is(err, store.ErrBusy) {
			t.Fatalf("%s: got %v, want %v", name, err, store.ErrBusy)
		}
		woken, err := waits.Watch(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		if err := free(c); err != nil {
			t.Errorf("%s: got %v, want nil", name, err)
		}
		select {
		case _, open := <-woken:
			if !open {
				t.Errorf("%s: the watch broke", name)
			}
		case <-time.After(long):
			t.Errorf("%s: the waiter was not woken", name)
		}
	}
}

// TestCheckToken_BesidePgstore checks that each store refuses a token that is older
// than the newest token of the other store.
func TestCheckToken_BesidePgstore(t *testing.T) {
	t.Parallel()
	d, pool := onBoth(t)
	s, db := d.store(t), d.open(t)
	byPgx := func(token uint64) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return pgstore.CheckToken(t.Context(), tx, "account", token) })
	}
	bySQL := func(token uint64) error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := s.CheckToken(t.Context(), tx, "account", token); err != nil {
			return err
		}
		return tx.Commit()
	}
	for i, c := range []struct {
		check func(token uint64) error
		token uint64
		want  error
	}{{byPgx, 64, nil}, {bySQL, 63, store.ErrLost}, {bySQL, 64, nil}, {bySQL, 128, nil}, {byPgx, 64, store.ErrLost}, {byPgx, 128, nil}} {
		if err := c.check(c.token); !errors.Is(err, c.want) {
			t.Errorf("step %d: token %d: got %v, want %v", i, c.token, err, c.want)
		}
	}
}

// TestCommit_OfTheOtherStore checks that a transaction of one driver cannot save a run
// of the other store.
func TestCommit_OfTheOtherStore(t *testing.T) {
	t.Parallel()
	d, pool := onBoth(t)
	bySQL, byPgx := d.store(t), newPgstore(t, pool, pgstore.WithoutWakeUps())
	c := claim("order", long)
	c.Record = &store.Record{Value: []byte("answer"), Attempt: 1, Done: true, Retain: long}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if err := pgstore.In(tx).SaveRun(t.Context(), bySQL, c); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("a transaction of pgx: got %v, want %v", err, store.ErrUnsupported)
	}
	other, err := d.open(t).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback() }()
	if err := sqlstore.In(other).SaveRun(t.Context(), byPgx, c); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("a transaction of database/sql: got %v, want %v", err, store.ErrUnsupported)
	}
}
