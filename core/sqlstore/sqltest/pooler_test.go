package sqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestPostgreSQL_Pooler checks that a Store works behind a pooler in transaction mode,
// if pgx is set to prepare no statements.
func TestPostgreSQL_Pooler(t *testing.T) {
	t.Parallel()
	testserver.RequirePgbouncer(t)
	server := durable.Get(t)
	for _, mode := range []string{"exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			pooler := testserver.StartPgbouncer(t, server.NewDatabase(t), "default_pool_size = 3")
			d := database{sqlstore.PostgreSQL, "pgx", pooler.URL("default_query_exec_mode=" + mode)}
			a, b := newShop(t, d, d), newShop(t, d, d)
			if err := a.in.Check(t.Context()); err != nil {
				t.Errorf("check: got %v, want nil", err)
			}
			var inside, shared atomic.Int32
			var all sync.WaitGroup
			for i := range 8 {
				s := []*shop{a, b}[i%2]
				all.Go(func() { s.cycles(t, &inside, &shared) })
			}
			for i := range 4 {
				key := fmt.Sprint("order ", i)
				all.Go(func() {
					if _, err := a.runs.Do(t.Context(), order(key), a.work(t, key, (*sql.Tx).Commit)); err != nil {
						t.Errorf("commit: got %v, want nil", err)
					}
					b.do(t, key, 1, true)
				})
			}
			all.Wait()
		})
	}
}

// cycles takes and releases locks that other goroutines of the test also take. It
// checks the tokens in transactions.
func (s *shop) cycles(t *testing.T, inside, shared *atomic.Int32) {
	for range 5 {
		err := s.locks.Do(t.Context(), "one", func(ctx context.Context) error {
			if n := inside.Add(1); n != 1 {
				t.Errorf("got %d holders of an exclusive lock, want 1", n)
			}
			defer inside.Add(-1)
			lease, _ := core.LeaseFromContext(ctx)
			tx := s.begin(t, ctx)
			return errors.Join(s.in.CheckToken(ctx, tx, "one", lease.Token()), tx.Commit())
		}, core.Fenced())
		if err == nil {
			err = s.locks.Do(t.Context(), "some", func(context.Context) error {
				if n := shared.Add(1); n > 2 {
					t.Errorf("got %d holders, want at most 2", n)
				}
				defer shared.Add(-1)
				return nil
			}, core.Permits(1, 2))
		}
		if err != nil {
			t.Errorf("got %v, want nil", err)
		}
	}
}

// TestPostgreSQL_PoolerPrepares checks calls behind a pooler if pgx prepares
// statements, which is its default. The error of a failed call names the setting, and
// matches store.ErrUnavailable.
func TestPostgreSQL_PoolerPrepares(t *testing.T) {
	t.Parallel()
	testserver.RequirePgbouncer(t)
	server := postgres.Get(t).NewDatabase(t)
	database{sqlstore.PostgreSQL, "pgx", server.URL()}.place(t)
	pooler := testserver.StartPgbouncer(t, server, "default_pool_size = 2")
	d := database{sqlstore.PostgreSQL, "pgx", pooler.URL()}
	db := d.open(t)
	db.SetMaxOpenConns(1)
	s := newStore(t, db, d)
	others := database{sqlstore.PostgreSQL, "pgx", pooler.URL("default_query_exec_mode=exec")}.open(t)
	occupy := func() *sql.Tx { // one of the two sessions of the server
		t.Helper()
		tx, err := others.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() })
		return tx
	}
	first := occupy()
	c := claim("key", long)
	acquire(t, s, c)
	_ = occupy() // the session in which the statements are prepared
	if err := first.Rollback(); err != nil {
		t.Fatal(err)
	}
	failed := 0
	for _, call := range []func() error{
		func() error { _, err := s.Acquire(t.Context(), claim(rand.Text(), long)); return err },
		func() error { return s.Extend(t.Context(), []store.Claim{c})[0].Err },
		func() error { return s.Release(t.Context(), c) },
	} {
		err := call()
		if err == nil {
			continue
		}
		failed++
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "default_query_exec_mode=exec") {
			t.Errorf("got %v, want %v that names the setting", err, store.ErrUnavailable)
		}
	}
	if failed == 0 {
		t.Error("got no error: the pooler has assigned one session, so the test shows nothing")
	}
}
