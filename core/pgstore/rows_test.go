package pgstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestRows(t *testing.T) {
	server := database(t)
	pool := testclient.Postgres(t, server.URL())
	s := newStore(t, pool)
	one := func(sql string) string { return server.Exec(sql)[0] }

	// Every row expires, and acquires of other keys delete expired rows (hazard 25).
	t.Run("expired rows", func(t *testing.T) {
		for i := range 120 {
			c := claimed()
			c.TTL = time.Millisecond
			switch i % 4 {
			case 0:
				c.Record = &store.Record{Value: []byte("begun"), Retain: time.Millisecond}
				acquire(t, s, c)
			case 1: // a tombstone
				_ = s.Release(t.Context(), c)
			case 2: // the place of a waiter
				acquire(t, s, c)
				w := exclusive(c.Key)
				w.Wait, w.TTL = true, time.Millisecond
				_, _ = s.Acquire(t.Context(), w)
			default:
				acquire(t, s, c)
				c.Keep = time.Millisecond
				_ = s.Release(t.Context(), c)
			}
		}
		alive := claimed()
		acquire(t, s, alive)
		if n := one("SELECT count(*) FROM lockkit.locks WHERE due > (" + micros + " + 120000000) / 300000000 + 1"); n != "0" {
			t.Errorf("%s rows have no end", n)
		}
		// Now the rows have been due for minutes. The first sweep of a process raises
		// the floor of tokens, and a sweep ten seconds later deletes.
		server.Exec("UPDATE lockkit.locks SET due = due - 3")
		s := newStore(t, pool)
		testserver.Eventually(t, 5*patience, "the rows are deleted, but those that are alive", func() bool {
			time.Sleep(100 * time.Millisecond)
			acquire(t, s, claimed())
			return one("SELECT count(*) FROM lockkit.locks WHERE due < "+micros+" / 300000000") == "1"
		})
		held(t, s, alive, true)
	})

	// Taking the same key again and again adds hardly any index entries.
	t.Run("no index entries", func(t *testing.T) {
		server.Exec("SELECT pg_stat_reset()")
		c, pool := claimed(), testclient.Postgres(t, server.URL())
		s := newStore(t, pool)
		for range 100 {
			c.Lease, c.Owner = claimed().Lease, claimed().Owner
			acquire(t, s, c)
			s.Extend(t.Context(), []store.Claim{c})
			release(t, s, c)
		}
		pool.Close() // then the server's processes report their counts
		testserver.Eventually(t, patience, "300 updates, of which nearly all leave the indexes alone", func() bool {
			return one("SELECT n_tup_upd >= 299 AND n_tup_hot_upd > n_tup_upd * 0.9 FROM pg_stat_user_tables WHERE relname = 'locks'") == "t"
		})
	})

	// A row that another session has locked delays only its own key, and only for a
	// limited time.
	t.Run("locked row", func(t *testing.T) {
		stuck, free := claimed(), claimed()
		acquire(t, s, stuck)
		acquire(t, s, free)
		tx := lockRow(t, server, stuck.Key)
		wantIs(t, "acquire", second(s.Acquire(t.Context(), exclusive(stuck.Key))), store.ErrUnavailable)
		wantIs(t, "release", s.Release(t.Context(), stuck), store.ErrUnavailable)
		start := time.Now()
		x := s.Extend(t.Context(), []store.Claim{free, stuck, claimed(), free})
		if took := time.Since(start); took > patience/2 {
			t.Errorf("it took %v", took)
		}
		if x[0].Err != nil || x[3].Err != nil || !errors.Is(x[1].Err, store.ErrUnavailable) || !errors.Is(x[2].Err, store.ErrLost) {
			t.Errorf("got %v", x)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if x := s.Extend(t.Context(), []store.Claim{stuck, free}); x[0].Err != nil || x[1].Err != nil {
			t.Errorf("got %v", x)
		}
		release(t, s, stuck)
	})

	// A busy error has the number of waiters. If there are many, a Locker polls less
	// often.
	t.Run("number of waiters", func(t *testing.T) {
		c := claimed()
		acquire(t, s, c)
		for i := range 30 {
			w := exclusive(c.Key)
			w.Wait, w.Fair = true, i%2 == 0
			var err error
			var busy *store.BusyError
			testserver.Eventually(t, patience, "an answer in time", func() bool {
				_, err = s.Acquire(t.Context(), w)
				return err == nil || errors.As(err, &busy)
			})
			if err == nil || busy.Waiting != i+1 {
				t.Fatalf("got %#v, want busy with %d waiting", err, i+1)
			}
		}
	})
}

// lockRow locks a row, like a session that stands still.
func lockRow(t *testing.T, server *testserver.Postgres, key string) pgx.Tx {
	t.Helper()
	return inRow(t, server, "SELECT FROM lockkit.locks WHERE name = $1 FOR UPDATE", key)
}

func changeRow(t *testing.T, server *testserver.Postgres, key string) pgx.Tx {
	t.Helper()
	return inRow(t, server, "UPDATE lockkit.locks SET version = version + 1 WHERE name = $1", key)
}

func inRow(t *testing.T, server *testserver.Postgres, sql, key string) pgx.Tx {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), sql, []byte(key)); err != nil {
		t.Fatal(err)
	}
	return tx
}
