package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
)

// unfenced fails the test unless CheckToken refuses q and has written nothing.
func unfenced(t *testing.T, s *sqlstore.Store, db *sql.DB, d database, q sqlstore.Querier, why string) {
	t.Helper()
	err := s.CheckToken(t.Context(), q, "order:42", 300)
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want %v with %q", err, store.ErrInvalid, why)
	}
	table := "lockkit_seen"
	if d.driver == "pgx" {
		table = "lockkit.seen"
	}
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n > 0 {
		t.Errorf("got %d tokens, %v, want none", n, err)
	}
}

// wrapped hides a *sql.DB.
type wrapped struct{ sqlstore.Querier }

func TestCheckToken_NoTransaction(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		_, db := d.place(t)
		s := newStore(t, db, d)
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		unfenced(t, s, db, d, conn, "no open transaction")
		unfenced(t, s, db, d, wrapped{db}, "no open transaction")
		for _, statement := range []string{"BEGIN", "ROLLBACK", "BEGIN"} {
			if _, err := conn.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: got %v: the proof has left a transaction open, or closed one", statement, err)
			}
			if statement == "BEGIN" {
				if err := s.CheckToken(t.Context(), conn, "order:42", 300); err != nil {
					t.Errorf("in a transaction: got %v, want nil", err)
				}
			}
		}
		if _, err := conn.ExecContext(t.Context(), "COMMIT"); err != nil {
			t.Fatal(err)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if err := s.CheckToken(t.Context(), tx, "order:42", 299); !errors.Is(err, store.ErrLost) {
			t.Errorf("got %v, want %v", err, store.ErrLost)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := s.CheckToken(t.Context(), tx, "order:42", 301); !errors.Is(err, sql.ErrTxDone) || !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a transaction that is over: got %v, want %v that is %v", err, store.ErrInvalid, sql.ErrTxDone)
		}
	})
}

// TestMariaDB_CheckTokenAfterDeadlock checks CheckToken after a deadlock has rolled the
// transaction back. It refuses the *sql.Tx, although the *sql.Tx still accepts
// statements.
func TestMariaDB_CheckTokenAfterDeadlock(t *testing.T) {
	t.Parallel()
	d := onMariaDB(t)
	_, db := d.place(t)
	s := newStore(t, db, d)
	for _, statement := range []string{"CREATE TABLE orders (id INT PRIMARY KEY, n INT) ENGINE=InnoDB", "INSERT INTO orders VALUES (0, 0), (1, 0)"} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	const update = "UPDATE orders SET n=n+1 WHERE id=?"
	var txs [2]*sql.Tx
	for i := range txs {
		tx, err := db.BeginTx(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(t.Context(), update, i); err != nil {
			t.Fatal(err)
		}
		txs[i] = tx
	}
	var errs [2]error
	var both sync.WaitGroup
	for i, tx := range txs {
		both.Go(func() { _, errs[i] = tx.ExecContext(t.Context(), update, 1-i) })
	}
	both.Wait()
	deadlocks := 0
	for i, tx := range txs {
		var e *mysql.MySQLError
		if errors.As(errs[i], &e) && e.Number == 1213 {
			deadlocks++
			unfenced(t, s, db, d, tx, "after a deadlock")
		} else if errs[i] != nil {
			t.Errorf("got %v, want a deadlock", errs[i])
		}
	}
	if deadlocks != 1 {
		t.Errorf("got %d deadlocks, want 1", deadlocks)
	}
}

func TestMariaDB_CheckTokenWithoutAutocommit(t *testing.T) {
	t.Parallel()
	d := onMariaDB(t)
	_, db := d.place(t)
	off := d
	off.dsn += "&autocommit=0"
	tx, err := off.open(t).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	unfenced(t, newStore(t, db, d), db, d, tx, "autocommit")
}
