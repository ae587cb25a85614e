package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// What becomes of the rows.
func TestRows(t *testing.T) {
	server := database(t)
	pool := testclient.Postgres(t, server.URL())
	s := newStore(t, pool)
	one := func(sql string) string { return server.Exec(sql)[0] }

	// hazard 25
	t.Run("every row has an end, and dead rows are deleted by acquires of other keys (hazard 25)", func(t *testing.T) {
		for i := range 300 {
			c := claimed()
			c.TTL = time.Millisecond
			switch i % 4 {
			case 0:
				c.Record = &store.Record{Value: []byte("begun"), Retain: time.Millisecond}
				acquire(t, s, c)
			case 1: // a tombstone
				_ = s.Release(t.Context(), c)
			case 2: // a place
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
		if n := one("SELECT count(*) FROM lockkit.keys WHERE until > now() + interval '1 minute' OR due > lockkit.bucket(until) + 1"); n != "0" {
			t.Errorf("%s rows have no end", n)
		}
		// Ten minutes later.
		server.Exec("UPDATE lockkit.keys SET due = due - 3")
		for range 40 {
			if one("SELECT count(*) FROM lockkit.keys WHERE until < now() AND due < lockkit.bucket(now())") == "0" {
				return
			}
			for range 50 {
				acquire(t, s, claimed())
			}
		}
		t.Error("dead rows are left")
	})

	t.Run("a sweep waits for no lock, and leaves rows that are alive or in use", func(t *testing.T) {
		alive, dead, used := claimed(), claimed(), claimed()
		for _, c := range []store.Claim{alive, dead, used} {
			acquire(t, s, c)
		}
		release(t, s, dead)
		release(t, s, used)
		server.Exec("UPDATE lockkit.keys SET due = 0")
		tx := lockRow(t, server, used.Key)
		server.Exec("SET lock_timeout = '1ms'; SELECT lockkit.sweep(100000)")
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		for c, want := range map[*store.Claim]string{&alive: "1", &dead: "0", &used: "1"} {
			if n := one(fmt.Sprintf("SELECT count(*) FROM lockkit.keys WHERE key = '%s'", c.Key)); n != want {
				t.Errorf("%s rows are left, want %s", n, want)
			}
		}
		held(t, s, alive, true)
	})

	t.Run("taking the same key again and again leaves no index entries", func(t *testing.T) {
		server.Exec("SELECT pg_stat_reset()")
		c, pool := claimed(), testclient.Postgres(t, server.URL())
		s := newStore(t, pool)
		for range 200 {
			c.Lease, c.Owner = claimed().Lease, claimed().Owner
			acquire(t, s, c)
			s.Extend(t.Context(), []store.Claim{c})
			release(t, s, c)
		}
		pool.Close() // with it, the server's processes tell what they have counted
		testserver.Eventually(t, patience, "600 updates, of which nearly all leave the indexes alone", func() bool {
			return one("SELECT n_tup_upd >= 599 AND n_tup_hot_upd > n_tup_upd * 0.9 FROM pg_stat_user_tables WHERE relname = 'keys'") == "t"
		})
	})

	t.Run("a row that another session has locked holds up its own key only, and not for ever", func(t *testing.T) {
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

	t.Run("a busy caller is told how many wait, so that many poll more seldom", func(t *testing.T) {
		c := claimed()
		acquire(t, s, c)
		for i := range 30 {
			w := exclusive(c.Key)
			w.Wait, w.Fair = true, i%2 == 0
			_, err := s.Acquire(t.Context(), w)
			var busy *store.BusyError
			if !errors.As(err, &busy) || busy.Waiting != i+1 {
				t.Fatalf("got %#v, want busy with %d waiting", err, i+1)
			}
		}
	})

	t.Run("people can see what is held", func(t *testing.T) {
		c := claimed()
		c.Key = "größer: " + c.Key
		acquire(t, s, c)
		if n := one("SELECT holds FROM lockkit.locks WHERE key = '" + c.Key + "'"); n != "1" {
			t.Errorf("got %s holds, want 1", n)
		}
	})
}

// lockRow locks a row as a backend does that stands still.
func lockRow(t *testing.T, server *testserver.Postgres, key string) pgx.Tx {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM lockkit.keys WHERE key = $1 FOR UPDATE", []byte(key)); err != nil {
		t.Fatal(err)
	}
	return tx
}
