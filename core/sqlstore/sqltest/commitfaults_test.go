package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/testserver"
)

// patiently makes a call of Do wait while an earlier run of its key still has its hold.
func patiently() once.Option { return once.Acquire(core.Wait(time.Minute)) }

// TestCommit_FullServer checks a server that has no session left for the locks after
// Commit. The outcome of the run is unknown, and the next call finds it.
func TestCommit_FullServer(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T) database{"mariadb": smallMariaDB, "postgres": smallPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := begin(t)
			_, db := d.place(t)
			s := &shop{db: d.orders(t), in: newStore(t, db, d)}
			s.locks, s.runs = newRuns(t, s.in, patiently())
			db.SetMaxIdleConns(0) // each call of the locks opens a connection
			for name, end := range map[string]func(*sql.Tx) error{"committed": (*sql.Tx).Commit, "rolled back": (*sql.Tx).Rollback} {
				free := func() {}
				out, err := s.runs.Do(t.Context(), order(name), s.work(t, name, func(tx *sql.Tx) error {
					free = occupy(t, d, s.db, db)
					return end(tx)
				}))
				if !errors.Is(err, core.ErrUnavailable) || !strings.Contains(err.Error(), "unknown whether") || !strings.Contains(strings.ToLower(err.Error()), "too many") {
					t.Errorf("%s: got %q and %v, want %v, unknown, that names the reason", name, out.Value, err, core.ErrUnavailable)
				}
				free()
				eventually(t, func() error { // until then the server counts as down
					l, err := s.locks.TryAcquire(t.Context(), "the server has room")
					if err != nil {
						return err
					}
					return l.Release(t.Context())
				})
				attempt := map[string]int{"committed": 1, "rolled back": 2}[name]
				s.do(t, name, attempt, name == "committed")
				s.do(t, name, attempt, true)
			}
		})
	}
}

// TestCommit_FullDisk checks a Commit whose answer finds no room on the server's disk.
// It saves nothing, and the run has failed. With room the next call runs again.
func TestCommit_FullDisk(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T) (*testserver.Disk, database){"mariadb": fullMariaDB, "postgres": fullPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, d := begin(t)
			s := newShop(t, d, d, patiently())
			err := s.failed(t, "long", "", func(ctx context.Context) (once.Answer, error) {
				tx, a := s.begin(t, ctx), once.Answer{Value: make([]byte, 1<<20)}
				if err := insert(ctx, tx, "long"); err != nil {
					return a, err
				}
				disk.Fill()
				err := once.Commit(ctx, sqlstore.In(tx), a)
				if err == nil {
					return a, tx.Commit()
				}
				return once.Answer{}, errors.Join(err, tx.Rollback())
			})
			if !isFull(err) {
				t.Errorf("got %v, want an error that names the full disk", err)
			}
			disk.Free()
			s.do(t, "long", 2, false)
			s.do(t, "long", 2, true)
		})
	}
}

func isFull(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "is full") || strings.Contains(err.Error(), "No space left"))
}

// TestPostgreSQL_CommitFullDisk checks a COMMIT that fails because the disk is full.
// The COMMIT runs a deferred trigger, which needs room. The answer is rolled back with
// the order, and the run has failed.
func TestPostgreSQL_CommitFullDisk(t *testing.T) {
	t.Parallel()
	disk, d := fullPostgres(t)
	s := newShop(t, d, d, patiently())
	for _, statement := range []string{
		"CREATE TABLE receipts (receipt text)", "ALTER TABLE receipts ALTER receipt SET STORAGE EXTERNAL",
		"CREATE FUNCTION print() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO receipts VALUES (repeat('long', 1000000)); RETURN NULL; END $$",
		"CREATE CONSTRAINT TRIGGER print AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION print()",
	} {
		if _, err := s.db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	var ended error
	s.failed(t, "key", "", s.work(t, "key", func(tx *sql.Tx) error {
		disk.Fill()
		ended = tx.Commit()
		return ended
	}))
	if !isFull(ended) {
		t.Errorf("COMMIT: got %v, want an error that names the full disk", ended)
	}
	disk.Free()
	s.do(t, "key", 2, false)
	s.do(t, "key", 2, true)
}

// TestMariaDB_CommitFullDisk checks a COMMIT that gets no reply because the server waits
// for room in its binary log. The outcome of the run is unknown. After a restart the next
// call finds that nothing was committed, and runs again.
func TestMariaDB_CommitFullDisk(t *testing.T) {
	t.Parallel()
	disk := testserver.NewDisk(t, "")
	server := disk.StartMariaDB("log_bin = bin", "binlog_format = ROW", "sync_binlog = 1")
	d := database{sqlstore.MySQL, "mysql", server.NewDatabase(t).DSN()}
	s := newShop(t, d, d, patiently())
	ended := make(chan error, 1)
	_, err := s.runs.Do(t.Context(), order("key"), s.work(t, "key", func(tx *sql.Tx) error {
		disk.Fill()
		go func() { ended <- tx.Commit() }()
		select {
		case err := <-ended:
			return fmt.Errorf("COMMIT is answered, so the test shows nothing: %w", err)
		case <-time.After(3 * time.Second):
			return errors.New("no reply to COMMIT")
		}
	}))
	if err == nil || !strings.Contains(err.Error(), "unknown whether") {
		t.Errorf("got %v, want an unknown outcome", err)
	}
	disk.Free()
	server.Restart()
	if err := <-ended; err == nil {
		t.Error("COMMIT: got nil, want a broken connection")
	}
	eventually(t, func() error {
		l, err := s.locks.TryAcquire(t.Context(), "the server is back")
		if err != nil {
			return err
		}
		return l.Release(t.Context())
	})
	s.do(t, "key", 2, false)
	s.do(t, "key", 2, true)
}
