package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestCheckToken(t *testing.T) {
	t.Parallel()
	server := database(t)
	server.Exec("CREATE TABLE account (name text PRIMARY KEY, balance int NOT NULL)")
	pool := testclient.Postgres(t, server.URL("pool_max_conns=20"))
	check := func(t *testing.T, resource string, token uint64) error {
		t.Helper()
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return pgstore.CheckToken(t.Context(), tx, resource, token)
		})
	}
	accept := func(t *testing.T, resource string, token uint64) {
		t.Helper()
		if err := check(t, resource, token); err != nil {
			t.Errorf("%s, token %d: %v", resource, token, err)
		}
	}

	// The same token and newer ones are accepted, and older ones fail with ErrLost.
	t.Run("older token", func(t *testing.T) {
		t.Parallel()
		for _, token := range []uint64{7, 7, 8, 8, 1 << 40, math.MaxInt64} {
			accept(t, "grows", token)
			wantIs(t, "older", check(t, "grows", token-1), store.ErrLost)
		}
		accept(t, "another resource", 1)
		accept(t, "größer \\ '%", 1)
	})

	t.Run("rolled back", func(t *testing.T) {
		t.Parallel()
		accept(t, "rolled back", 5)
		no := errors.New("no")
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return errors.Join(no, pgstore.CheckToken(t.Context(), tx, "rolled back", 9))
		})
		if !errors.Is(err, no) || errors.Is(err, store.ErrLost) {
			t.Fatal(err)
		}
		accept(t, "rolled back", 6)
	})

	// A refused transaction can still read.
	t.Run("refused transaction", func(t *testing.T) {
		t.Parallel()
		accept(t, "refused", 5)
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
		wantIs(t, "check", pgstore.CheckToken(t.Context(), tx, "refused", 4), store.ErrLost)
		var one int
		if err := tx.QueryRow(t.Context(), "SELECT 1").Scan(&one); err != nil {
			t.Error(err)
		}
	})

	// Invalid arguments are refused before anything is sent.
	t.Run("bad input", func(t *testing.T) {
		t.Parallel()
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
		for _, err := range []error{
			pgstore.CheckToken(t.Context(), nil, "a", 1),
			pgstore.CheckToken(t.Context(), tx, "", 1),
			pgstore.CheckToken(t.Context(), tx, strings.Repeat("a", 513), 1),
			pgstore.CheckToken(t.Context(), tx, "a\xff", 1),
			pgstore.CheckToken(t.Context(), tx, "a\x00", 1),
			pgstore.CheckToken(t.Context(), tx, "a", 0),
			pgstore.CheckToken(t.Context(), tx, "a", math.MaxInt64+1),
		} {
			wantIs(t, "check", err, store.ErrInvalid)
		}
		if err := pgstore.CheckToken(t.Context(), tx, "a", 1); err != nil {
			t.Error(err) // the transaction still works
		}
	})

	// Transactions of one resource wait for each other, and the newer token wins.
	t.Run("two transactions", func(t *testing.T) {
		t.Parallel()
		for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
			resource := "order " + string(level)
			options := pgx.TxOptions{IsoLevel: level}
			first, err := pool.BeginTx(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			defer first.Rollback(context.Background())
			// A transaction with one snapshot takes its snapshot here.
			stale, err := pool.BeginTx(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			defer stale.Rollback(context.Background())
			if _, err := stale.Exec(t.Context(), "SELECT 1"); err != nil {
				t.Fatal(err)
			}
			if err := pgstore.CheckToken(t.Context(), first, resource, 2); err != nil {
				t.Fatal(err)
			}
			answer := make(chan error, 1)
			go func() { answer <- pgstore.CheckToken(t.Context(), stale, resource, 1) }()
			testserver.Eventually(t, patience, "the stale one waits", func() bool {
				return server.Exec("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%lockkit.seen%'")[0] != "0"
			})
			select {
			case err := <-answer:
				t.Errorf("%s: answered with %v while the first one has not ended", level, err)
			default:
			}
			if err := first.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			err = <-answer
			var failure *pgconn.PgError
			serialization := errors.As(err, &failure)
			if !errors.Is(err, store.ErrLost) && (!serialization || failure.Code != "40001") {
				t.Errorf("%s: got %v, want ErrLost or a serialization failure", level, err)
			}
		}
	})

	// Tokens of any store can be checked, even through a pooler.
	t.Run("any store", func(t *testing.T) {
		t.Parallel()
		testserver.RequirePgbouncer(t)
		pooled := testclient.Postgres(t, testserver.StartPgbouncer(t, server).URL())
		locker, err := core.New(memstore.New())
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			lease, err := locker.Acquire(t.Context(), "elsewhere", core.Fenced())
			if err != nil {
				t.Fatal(err)
			}
			err = pgx.BeginFunc(t.Context(), pooled, func(tx pgx.Tx) error {
				return pgstore.CheckToken(t.Context(), tx, "elsewhere", lease.Token())
			})
			if err := errors.Join(err, lease.Release(t.Context())); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestPausedHolder pauses a holder between its read and its write. Meanwhile a successor
// writes, and then the holder tries to write a value that is out of date.
func TestPausedHolder(t *testing.T) {
	t.Parallel()
	server := database(t)
	server.Exec("CREATE TABLE account (name text PRIMARY KEY, balance int NOT NULL)")
	pool := testclient.Postgres(t, server.URL("pool_max_conns=20"))
	const trials = 20

	t.Run("token checked", func(t *testing.T) {
		t.Parallel()
		var refused, lost, stale int
		for i := range trials {
			balance, err := pausedWrite(t, pool, fmt.Sprintf("fenced:%d", i), true)
			if errors.Is(err, store.ErrLost) {
				refused++
			}
			if balance == 110 {
				lost++
			}
			if err == nil {
				stale++
			}
		}
		if refused != trials || lost != 0 {
			t.Errorf("of %d stale writes %d were refused, %d updates were lost", trials, refused, lost)
		}
		tally.Note(t, tally.Facts{
			Part: "matrix", Runs: trials, Faults: map[string]int{"paused holder": trials},
			Outcomes: map[string]int{"lost": refused}, Violations: map[string]int{"stale writes": stale},
		})
	})
	// Without the check the successor's update is lost.
	t.Run("token unchecked", func(t *testing.T) {
		t.Parallel()
		lost := 0
		for i := range trials {
			if balance, err := pausedWrite(t, pool, fmt.Sprintf("open:%d", i), false); err == nil && balance == 110 {
				lost++
			}
		}
		if lost != trials {
			t.Errorf("of %d stale writes %d were accepted: the test shows nothing", trials, lost)
		}
		tally.Note(t, tally.Facts{
			Part: "limits", Runs: trials, Faults: map[string]int{"paused holder": trials},
			Expected: map[string]int{"stale writes": lost},
		})
	})
}

// pausedWrite returns the error of the paused holder's transaction, and the final
// balance. The holder adds 10 to the balance of 100 that it has read, while its
// successor adds 5. The balance is 105 if the holder is refused, and 110 if the
// successor's update is lost.
func pausedWrite(t *testing.T, pool *pgxpool.Pool, name string, fenced bool) (balance int, err error) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), "INSERT INTO account VALUES ($1, 100)", name); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, pool)
	holder, successor := exclusive(name), exclusive(name)
	holder.TTL = 20 * time.Millisecond
	g := acquire(t, s, holder)
	add := func(token uint64, amount int, pause func()) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			var balance int
			if err := tx.QueryRow(t.Context(), "SELECT balance FROM account WHERE name = $1", name).Scan(&balance); err != nil {
				return err
			}
			pause()
			if fenced {
				if err := pgstore.CheckToken(t.Context(), tx, name, token); err != nil {
					return err
				}
			}
			_, err := tx.Exec(t.Context(), "UPDATE account SET balance = $2 WHERE name = $1", name, balance+amount)
			return err
		})
	}
	err = add(g.Token, 10, func() {
		var next store.Grant
		testserver.Eventually(t, patience, "the lease runs out", func() bool {
			var err error
			next, err = s.Acquire(t.Context(), successor)
			return err == nil
		})
		if err := add(next.Token, 5, func() {}); err != nil {
			t.Errorf("the successor: %v", err)
		}
	})
	if err := pool.QueryRow(t.Context(), "SELECT balance FROM account WHERE name = $1", name).Scan(&balance); err != nil {
		t.Fatal(err)
	}
	return balance, err
}
