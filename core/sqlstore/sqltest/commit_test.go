package sqltest

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/sqlstore/internal/rows"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// shop stands for a process with orders in one database, and locks in the same or
// another database.
type shop struct {
	db    *sql.DB // the pool for the orders
	locks *core.Locker
	runs  *once.Once
	in    *sqlstore.Store
}

// newShop returns a process with its orders in d and its locks in locks.
func newShop(t testing.TB, d, locks database, opts ...once.Option) *shop {
	t.Helper()
	_, db := locks.place(t)
	s := &shop{db: d.orders(t), in: newStore(t, db, locks)}
	s.locks, s.runs = newRuns(t, s.in, opts...)
	return s
}

func newRuns(t testing.TB, s core.Store, opts ...once.Option) (*core.Locker, *once.Once) {
	t.Helper()
	locks, err := core.New(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = locks.Close(ctx)
	})
	runs, err := once.New(locks, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return locks, runs
}

// creating serializes orders. PostgreSQL refuses the second of two concurrent CREATE
// TABLE IF NOT EXISTS.
var creating sync.Mutex

// orders creates the table of the orders, and returns a pool for transactions on it.
func (d database) orders(t testing.TB) *sql.DB {
	t.Helper()
	if d.driver == "sqlite" {
		d.dsn += "&_txlock=immediate"
	}
	db := d.open(t)
	creating.Lock()
	defer creating.Unlock()
	if _, err := db.ExecContext(context.Background(), "CREATE TABLE IF NOT EXISTS orders (name VARCHAR(100) NOT NULL, note VARCHAR(100))"); err != nil {
		t.Fatal(err)
	}
	return db
}

func order(key string) once.Call { return once.Call{Name: "order", Key: key} }

// insert inserts an order, which is the effect of a run.
func insert(ctx context.Context, q sqlstore.Querier, key string) error {
	_, err := q.ExecContext(ctx, "INSERT INTO orders (name) VALUES ('"+key+"')")
	return err
}

func (s *shop) count(t testing.TB, key string) (n int) {
	t.Helper()
	if err := s.db.QueryRowContext(context.Background(), "SELECT COUNT(*) FROM orders WHERE name='"+key+"'").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestCommit_PoolOfOne checks that SaveRun needs no connection except that of the
// caller's transaction.
func TestCommit_PoolOfOne(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		_, db := d.place(t)
		s := newStore(t, db, d)
		db.SetMaxOpenConns(1)
		c := claim("key", long)
		c.Record = &store.Record{Value: []byte("begun"), Retain: long}
		acquire(t, s, c)
		c.Record = &store.Record{Value: []byte("answer"), Attempt: 1, Done: true, Retain: long}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if err := sqlstore.In(tx).SaveRun(t.Context(), s, c); err != nil {
			t.Fatalf("got %v, want nil", err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if state, err := s.Look(t.Context(), "key"); err != nil || state.Run == nil || !state.Run.Done {
			t.Errorf("got %+v and %v, want a run that is done", state.Run, err)
		}
	})
}

// TestPostgreSQL_CommitWaitsForDisk checks that SaveRun turns synchronous_commit on if
// it is off at the server or in the caller's transaction. So the COMMIT of an answer
// waits for the disk. The change lasts as long as the transaction.
func TestPostgreSQL_CommitWaitsForDisk(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ server, caller, want string }{
		"off at the server":   {"off", "", "on"},
		"off by the caller":   {"on", "off", "on"},
		"local at the server": {"local", "", "local"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := database{sqlstore.PostgreSQL, "pgx", postgres.Get(t).NewDatabase(t, "synchronous_commit = "+c.server).URL()}
			_, db := d.place(t)
			s := newStore(t, db, d)
			db.SetMaxOpenConns(1)
			run := claim("key", long)
			run.Record = &store.Record{Value: []byte("begun"), Retain: long}
			acquire(t, s, run)
			run.Record = &store.Record{Value: []byte("answer"), Attempt: 1, Done: true, Retain: long}
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if c.caller != "" {
				if _, err := tx.ExecContext(t.Context(), "SET LOCAL synchronous_commit = "+c.caller); err != nil {
					t.Fatal(err)
				}
			}
			if err := sqlstore.In(tx).SaveRun(t.Context(), s, run); err != nil {
				t.Fatal(err)
			}
			var got string
			if err := tx.QueryRowContext(t.Context(), "SHOW synchronous_commit").Scan(&got); err != nil || got != c.want {
				t.Errorf("in the transaction: got %q, %v, want %q", got, err, c.want)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := db.QueryRowContext(t.Context(), "SHOW synchronous_commit").Scan(&got); err != nil || got != c.server {
				t.Errorf("after the transaction: got %q, %v, want %q", got, err, c.server)
			}
		})
	}
}

func (s *shop) begin(t testing.TB, ctx context.Context) *sql.Tx {
	t.Helper()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// work returns a run that inserts an order and commits it with an answer. end ends the
// transaction.
func (s *shop) work(t testing.TB, key string, end func(*sql.Tx) error) func(context.Context) (once.Answer, error) {
	return func(ctx context.Context) (once.Answer, error) {
		tx := s.begin(t, ctx)
		if err := insert(ctx, tx, key); err != nil {
			return once.Answer{}, err
		}
		n, _ := once.AttemptFromContext(ctx)
		a := once.Answer{Value: fmt.Appendf(nil, "%s by attempt %d", key, n)}
		if err := once.Commit(ctx, sqlstore.In(tx), a); err != nil {
			return once.Answer{}, errors.Join(err, tx.Rollback())
		}
		return a, end(tx)
	}
}

// do calls Do for key, and fails the test unless Do returns the answer of this attempt,
// by a run or a replay.
func (s *shop) do(t testing.TB, key string, attempt int, replayed bool) {
	t.Helper()
	out, err := s.runs.Do(context.Background(), order(key), s.work(t, key, (*sql.Tx).Commit))
	want := fmt.Sprintf("%s by attempt %d", key, attempt)
	if err != nil || string(out.Value) != want || out.Replayed != replayed || out.Attempt != attempt {
		t.Errorf("got %q, replayed %v, attempt %d and %v, want %q, replayed %v", out.Value, out.Replayed, out.Attempt, err, want, replayed)
	}
	if n := s.count(t, key); n != 1 {
		t.Errorf("got %d orders, want 1", n)
	}
}

// failed fails the test unless a run of work fails and leaves no order.
func (s *shop) failed(t testing.TB, key, why string, work func(ctx context.Context) (once.Answer, error)) error {
	t.Helper()
	out, err := s.runs.Do(context.Background(), order(key), work)
	if err == nil || !strings.Contains(err.Error(), why) || out.Value != nil {
		t.Errorf("got %q and %v, want an error with %q", out.Value, err, why)
	}
	if n := s.count(t, key); n != 0 {
		t.Errorf("got %d orders, want none", n)
	}
	return err
}

func TestCommit(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		s := newShop(t, d, d)
		commit := (*sql.Tx).Commit
		t.Run("committed answer", func(t *testing.T) {
			s.do(t, "committed", 1, false)
			s.do(t, "committed", 1, true)
		})
		t.Run("rolled back", func(t *testing.T) {
			own := errors.New("no stock")
			err := s.failed(t, "rolled back", "no stock", s.work(t, "rolled back", func(tx *sql.Tx) error { return errors.Join(own, tx.Rollback()) }))
			if !errors.Is(err, own) {
				t.Errorf("got %v, want the error of the work", err)
			}
			s.do(t, "rolled back", 2, false)
			s.do(t, "rolled back", 2, true)
		})
		t.Run("rolled back unseen", func(t *testing.T) {
			s.failed(t, "unseen", "was not committed", s.work(t, "unseen", (*sql.Tx).Rollback))
			s.do(t, "unseen", 2, false)
		})
		t.Run("an error after the commit", func(t *testing.T) {
			out, err := s.runs.Do(t.Context(), order("late"), s.work(t, "late", func(tx *sql.Tx) error { return errors.Join(errors.New("late"), tx.Commit()) }))
			if err != nil || string(out.Value) != "late by attempt 1" {
				t.Errorf("got %q and %v, want the answer", out.Value, err)
			}
			s.do(t, "late", 1, true)
		})
		t.Run("a panic after the commit", func(t *testing.T) {
			func() {
				defer func() { _ = recover() }()
				_, _ = s.runs.Do(t.Context(), order("panic"), s.work(t, "panic", func(tx *sql.Tx) error {
					_ = tx.Commit()
					panic("own")
				}))
			}()
			s.do(t, "panic", 1, true)
		})
		t.Run("unreplayable answer", func(t *testing.T) {
			a := once.Answer{Value: []byte("for this caller only"), Unreplayable: true}
			out, err := s.runs.Do(t.Context(), order("unreplayable"), func(ctx context.Context) (once.Answer, error) {
				tx := s.begin(t, ctx)
				if err := once.Commit(ctx, sqlstore.In(tx), a); err != nil {
					return a, err
				}
				return a, tx.Commit()
			})
			if err != nil || string(out.Value) != string(a.Value) {
				t.Errorf("got %q and %v, want the answer", out.Value, err)
			}
			if _, err := s.runs.Do(t.Context(), order("unreplayable"), s.work(t, "", commit)); !errors.Is(err, once.ErrUnreplayable) {
				t.Errorf("got %v, want %v", err, once.ErrUnreplayable)
			}
		})
		t.Run("ignored error of Commit", func(t *testing.T) {
			s.failed(t, "ignored", "was not committed", func(ctx context.Context) (once.Answer, error) {
				tx := s.begin(t, ctx)
				if err := errors.Join(insert(ctx, tx, "ignored"), tx.Rollback()); err != nil {
					t.Error(err)
				}
				if err := once.Commit(ctx, sqlstore.In(tx), once.Answer{}); err == nil {
					t.Error("got nil, want an error")
				}
				return once.Answer{Value: []byte("untrue")}, nil
			})
			s.do(t, "ignored", 2, false)
		})
		t.Run("a second one", func(t *testing.T) {
			out, err := s.runs.Do(t.Context(), order("second"), func(ctx context.Context) (once.Answer, error) {
				for range 2 { // the first transaction is rolled back
					tx := s.begin(t, ctx)
					a := once.Answer{Value: []byte("second by attempt 1")}
					if err := errors.Join(insert(ctx, tx, "second"), once.Commit(ctx, sqlstore.In(tx), a)); err != nil {
						return once.Answer{}, err
					}
					if err := once.Commit(ctx, sqlstore.In(tx), once.Answer{}); !errors.Is(err, core.ErrInvalid) || errors.Is(err, core.ErrLost) {
						t.Errorf("in the same transaction: got %v, want %v", err, core.ErrInvalid)
					}
					if ctx.Err() != nil {
						t.Errorf("got a context with %v, want none", context.Cause(ctx))
					}
					if s.count(t, "second") == 0 && tx.Rollback() == nil {
						break
					}
				}
				return s.work(t, "second", commit)(ctx)
			})
			if err != nil || string(out.Value) != "second by attempt 1" {
				t.Errorf("got %q and %v, want the answer", out.Value, err)
			}
			s.do(t, "second", 1, true)
		})
		t.Run("repeat after a commit", func(t *testing.T) {
			out, err := s.runs.Do(t.Context(), order("repeat"), func(ctx context.Context) (once.Answer, error) {
				if a, err := s.work(t, "repeat", commit)(ctx); err != nil {
					return a, err
				}
				// This is as if the reply to the first COMMIT had been lost.
				_, err := s.work(t, "repeat", commit)(ctx)
				if !errors.Is(err, core.ErrLost) {
					t.Errorf("got %v, want %v", err, core.ErrLost)
				}
				return once.Answer{}, err
			})
			if err != nil || string(out.Value) != "repeat by attempt 1" {
				t.Errorf("got %q and %v, want the answer", out.Value, err)
			}
			s.do(t, "repeat", 1, true)
		})
		t.Run("a long answer", func(t *testing.T) {
			long := strings.Repeat("long ", 200_000)
			out, err := s.runs.Do(t.Context(), order("long"), func(ctx context.Context) (once.Answer, error) {
				a, tx := once.Answer{Value: []byte(long)}, s.begin(t, ctx)
				if err := once.Commit(ctx, sqlstore.In(tx), a); err != nil {
					return a, err
				}
				return a, tx.Commit()
			})
			again, err2 := s.runs.Do(t.Context(), order("long"), s.work(t, "long", commit))
			if errors.Join(err, err2) != nil || string(out.Value) != long || string(again.Value) != long {
				t.Errorf("got %d and %d bytes, %v, want the answer", len(out.Value), len(again.Value), errors.Join(err, err2))
			}
		})
		t.Run("nothing visible before COMMIT", func(t *testing.T) {
			other := newShop(t, d, d)
			_, err := s.runs.Do(t.Context(), order("open"), s.work(t, "open", func(tx *sql.Tx) error {
				if _, err := other.runs.Do(t.Context(), order("open"), other.work(t, "open", commit)); err == nil {
					t.Error("got an answer of an open transaction, want an error")
				}
				return tx.Commit()
			}))
			if err != nil {
				t.Error(err)
			}
			other.do(t, "open", 1, true)
		})
		t.Run("hold is released", func(t *testing.T) {
			_, err := s.runs.Do(t.Context(), order("hold"), s.work(t, "hold", func(tx *sql.Tx) error {
				if err := tx.Commit(); err != nil {
					return err
				}
				states, _, err := s.in.List(t.Context(), "", store.MostListed)
				for _, state := range states {
					if len(state.Holds) > 0 {
						t.Errorf("got %d holds after the commit, want none", len(state.Holds))
					}
				}
				return err
			}))
			if err != nil {
				t.Error(err)
			}
		})
	})
}

// TestCommit_TakenOver checks that a holder that was paused cannot commit after its run
// was taken over.
func TestCommit_TakenOver(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		for name, over := range map[string]bool{"while it runs": false, "and over": true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				key := strings.ReplaceAll(name, " ", "_")
				stale := newShop(t, d, d, once.Acquire(core.TTL(6*time.Second), core.NoRenew()))
				next := newShop(t, d, d, once.Acquire(core.Wait(time.Minute)))
				begun, ended := make(chan struct{}), make(chan struct{})
				finished := make(chan error, 1)
				_, err := stale.runs.Do(t.Context(), order(key), func(ctx context.Context) (once.Answer, error) {
					<-ctx.Done() // as after a pause
					go func() {
						_, err := next.runs.Do(context.Background(), order(key), func(ctx context.Context) (once.Answer, error) {
							close(begun)
							if !over {
								<-ended
							}
							return next.work(t, key, (*sql.Tx).Commit)(ctx)
						})
						finished <- err
					}()
					<-begun
					if over {
						if err := <-finished; err != nil {
							t.Error(err)
						}
					}
					defer close(ended)
					return stale.work(t, key, (*sql.Tx).Commit)(context.WithoutCancel(ctx))
				})
				if !errors.Is(err, core.ErrLost) {
					t.Errorf("got %v, want %v", err, core.ErrLost)
				}
				if !over {
					if err := <-finished; err != nil {
						t.Error(err)
					}
				}
				next.do(t, key, 2, true)
			})
		}
	})
}

func TestCommit_Refused(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		s := newShop(t, d, d)
		a := once.Answer{Value: []byte("answer")}
		tx := s.begin(t, t.Context())
		if err := once.Commit(t.Context(), sqlstore.In(tx), a); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("outside a run: got %v, want %v", err, core.ErrInvalid)
		}
		_ = tx.Rollback()
		for name, c := range map[string]struct {
			want   error
			commit func(ctx context.Context) error
		}{
			"no saver":       {core.ErrInvalid, func(ctx context.Context) error { return once.Commit(ctx, nil, a) }},
			"no transaction": {core.ErrInvalid, func(ctx context.Context) error { return once.Commit(ctx, sqlstore.In(nil), a) }},
			"nil": {core.ErrInvalid, func(ctx context.Context) error {
				return once.Commit(ctx, sqlstore.In((*sql.Tx)(nil)), a)
			}},
			"a pool": {core.ErrInvalid, func(ctx context.Context) error { return once.Commit(ctx, sqlstore.In(s.db), a) }},
			"a connection": {core.ErrInvalid, func(ctx context.Context) error {
				conn, err := s.db.Conn(ctx)
				if err != nil {
					return err
				}
				defer conn.Close()
				return once.Commit(ctx, sqlstore.In(conn), a)
			}},
			"too long": {core.ErrInvalid, func(ctx context.Context) error {
				return once.Commit(ctx, sqlstore.In(s.begin(t, ctx)), once.Answer{Value: make([]byte, 32<<20+1)})
			}},
			"not final": {core.ErrInvalid, func(ctx context.Context) error {
				once.NotFinal(ctx)
				return once.Commit(ctx, sqlstore.In(s.begin(t, ctx)), a)
			}},
			"another database": {core.ErrUnsupported, func(ctx context.Context) error {
				return once.Commit(ctx, sqlstore.In(elsewhere(t, d).begin(t, ctx)), a)
			}},
		} {
			t.Run(name, func(t *testing.T) {
				key := strings.ReplaceAll(name, " ", "_")
				_, err := s.runs.Do(t.Context(), order(key), func(ctx context.Context) (once.Answer, error) {
					return once.Answer{}, c.commit(ctx)
				})
				if name == "not final" && err == nil || err != nil && !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				s.do(t, key, 2, false)
			})
		}
		t.Run("another store", func(t *testing.T) {
			_, runs := newRuns(t, memstore.New())
			out, err := runs.Do(t.Context(), order("memory"), func(ctx context.Context) (once.Answer, error) {
				tx := s.begin(t, ctx)
				defer func() { _ = tx.Rollback() }()
				if err := once.Commit(ctx, sqlstore.In(tx), a); !errors.Is(err, core.ErrUnsupported) {
					t.Errorf("got %v, want %v", err, core.ErrUnsupported)
				}
				return a, nil // saved as if there were no Commit
			})
			if err != nil || string(out.Value) != "answer" {
				t.Errorf("got %q and %v, want the answer", out.Value, err)
			}
		})
		t.Run("after the run", func(t *testing.T) {
			var run context.Context
			_, _ = s.runs.Do(t.Context(), order("after"), func(ctx context.Context) (once.Answer, error) {
				run = context.WithoutCancel(ctx)
				return a, nil
			})
			if err := once.Commit(run, sqlstore.In(s.begin(t, t.Context())), a); !errors.Is(err, core.ErrInvalid) {
				t.Errorf("got %v, want %v", err, core.ErrInvalid)
			}
		})
	})
}

// elsewhere returns a process on another database of the same kind.
func elsewhere(t *testing.T, d database) *shop {
	t.Helper()
	switch d.driver {
	case "mysql":
		d = onMariaDB(t)
	case "pgx":
		d.dsn = postgres.Get(t).NewDatabase(t).URL()
	default:
		d.dsn = strings.Replace(d.dsn, "locks.db", "others.db", 1)
	}
	return newShop(t, d, d)
}

// TestCommit_OpenForLong checks that a transaction may be open for longer than a TTL,
// before Commit and after it. On SQLite it checks only the time after Commit.
func TestCommit_OpenForLong(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	everywhere(t, func(t *testing.T, d database) {
		s := newShop(t, d, d, once.Acquire(core.TTL(ttl)))
		wait := func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return fmt.Errorf("the context ended: %w", context.Cause(ctx))
			case <-time.After(3 * ttl):
				return nil
			}
		}
		t.Run("expires before the commit", func(t *testing.T) {
			if d.driver == "sqlite" {
				t.Skip("an open write transaction stops every extension in the file")
			}
			t.Parallel()
			out, err := s.runs.Do(t.Context(), order("before"), func(ctx context.Context) (once.Answer, error) {
				tx := s.begin(t, ctx)
				var orders, locks int // a snapshot, which MariaDB takes by default
				err := errors.Join(tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM orders").Scan(&orders), insert(ctx, tx, "before"),
					tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+locksTable(d)).Scan(&locks), wait(ctx))
				a := once.Answer{Value: []byte("before by attempt 1")}
				if err == nil {
					err = once.Commit(ctx, sqlstore.In(tx), a)
				}
				if err != nil || locks == 0 {
					return a, fmt.Errorf("%d locks: %w", locks, err)
				}
				return a, tx.Commit()
			})
			if err != nil {
				t.Errorf("got %q and %v, want the answer", out.Value, err)
			}
			s.do(t, "before", 1, true)
		})
		t.Run("commits after others extend", func(t *testing.T) {
			t.Parallel()
			// While the transaction is open, other holds are extended, except on
			// SQLite.
			other, err := s.locks.TryAcquire(t.Context(), "other", core.TTL(ttl))
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := context.Cause(other.Context()); err != nil && d.driver != "sqlite" {
					t.Errorf("another hold: got %v, want it held", err)
				}
				_ = other.Release(context.Background())
			}()
			var run context.Context
			out, err := s.runs.Do(t.Context(), order("after"), func(ctx context.Context) (once.Answer, error) {
				run = ctx
				return s.work(t, "after", func(tx *sql.Tx) error {
					if err := wait(ctx); err != nil {
						return errors.Join(err, tx.Rollback())
					}
					return tx.Commit()
				})(ctx)
			})
			if err != nil || errors.Is(context.Cause(run), core.ErrLost) {
				t.Errorf("got %q, %v and a context with %v, want the answer", out.Value, err, context.Cause(run))
			}
			s.do(t, "after", 1, true)
		})
	})
}

func locksTable(d database) string {
	if d.driver == "pgx" {
		return "lockkit.locks"
	}
	return "lockkit_locks"
}

// TestCommit_DeadlockIgnored checks that nothing is committed if a deadlock has rolled
// the transaction back and the caller ignores this.
func TestCommit_DeadlockIgnored(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		if d.driver == "sqlite" {
			t.Skip("it has no deadlocks")
		}
		s := newShop(t, d, d)
		for name, swallow := range map[string]bool{"before Commit": false, "after Commit": true} {
			t.Run(name, func(t *testing.T) {
				key := strings.ReplaceAll(name, " ", "_")
				if _, err := s.db.ExecContext(t.Context(), "CREATE TABLE "+key+" (id INT PRIMARY KEY, n INT)"); err != nil {
					t.Fatal(err)
				}
				for id := range 60 {
					if _, err := s.db.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO %s VALUES (%d,0)", key, id)); err != nil {
						t.Fatal(err)
					}
				}
				a := once.Answer{Value: []byte("untrue")}
				s.failed(t, key, "", func(ctx context.Context) (once.Answer, error) {
					tx := s.begin(t, ctx)
					if err := insert(ctx, tx, key); err != nil {
						return a, err
					}
					if !swallow {
						deadlock(t, s, tx, key, d.driver == "pgx")
						if err := once.Commit(ctx, sqlstore.In(tx), a); err == nil {
							t.Error("got nil, want an error")
						}
					} else {
						if err := once.Commit(ctx, sqlstore.In(tx), a); err != nil {
							return a, err
						}
						deadlock(t, s, tx, key, d.driver == "pgx")
					}
					_ = tx.Commit()
					return a, nil // as if there were no error
				})
				s.do(t, key, 2, false)
			})
		}
	})
}

// deadlock makes tx the victim of a deadlock in the table key, and ignores the error.
func deadlock(t *testing.T, s *shop, tx *sql.Tx, key string, postgres bool) {
	t.Helper()
	ctx := t.Context()
	exec := func(q sqlstore.Querier, format string, args ...any) error {
		_, err := q.ExecContext(ctx, fmt.Sprintf(format, args...))
		return err
	}
	const add = "UPDATE %s SET n=n+1 WHERE id>=%d AND id<=%d"
	for id := 0; id < 60; id += 12 { // until the server chooses tx
		other := s.begin(t, ctx)
		if postgres {
			// tx must find the deadlock first.
			_ = exec(other, "SET LOCAL deadlock_timeout = '1min'")
		}
		// MariaDB chooses the transaction that has changed fewer rows.
		if err := errors.Join(exec(tx, add, key, id, id), exec(other, add, key, id+1, id+11)); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- exec(other, add, key, id, id) }()
		err := exec(tx, add, key, id+1, id+1)
		otherErr := <-done
		_ = other.Rollback()
		if err != nil {
			return
		}
		t.Logf("the other one was chosen: %v", otherErr)
	}
	t.Fatal("the transaction was never chosen as the victim")
}

// TestCommit_Levels checks the isolation levels. Commit writes nothing and fails at a
// level at which it would read a row from a snapshot.
func TestCommit_Levels(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		s := newShop(t, d, d)
		for level, fit := range map[sql.IsolationLevel]bool{
			sql.LevelReadCommitted: true, sql.LevelRepeatableRead: d.driver != "pgx", sql.LevelSerializable: d.driver != "pgx",
		} {
			if d.driver == "sqlite" && level != sql.LevelSerializable {
				continue // SQLite has only one level
			}
			key := strings.ReplaceAll(level.String(), " ", "_")
			_, err := s.runs.Do(t.Context(), order(key), func(ctx context.Context) (once.Answer, error) {
				tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
				if err != nil {
					return once.Answer{}, err
				}
				defer func() { _ = tx.Rollback() }()
				a := once.Answer{Value: []byte(key + " by attempt 1")}
				if err := errors.Join(insert(ctx, tx, key), once.Commit(ctx, sqlstore.In(tx), a)); err != nil {
					return a, err
				}
				return a, tx.Commit()
			})
			switch {
			case !fit && !errors.Is(err, core.ErrUnsupported):
				t.Errorf("%v: got %v, want %v", level, err, core.ErrUnsupported)
			case !fit:
				s.do(t, key, 2, false)
			case err != nil:
				t.Errorf("%v: got %v, want nil", level, err)
			default:
				s.do(t, key, 1, true)
			}
		}
	})
}

// behindProxy runs fn on MariaDB and PostgreSQL, with a proxy that can read their
// statements. commit is the text of the driver's COMMIT.
func behindProxy(t *testing.T, fn func(t *testing.T, direct, behind database, proxy *testserver.Proxy, commit string)) {
	t.Helper()
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		server := mariaDB.Get(t).NewDatabase(t)
		proxy := testserver.NewMySQLProxy(t, server.Addr)
		direct := database{sqlstore.MySQL, "mysql", server.DSN()}
		fn(t, direct, database{sqlstore.MySQL, "mysql", server.DSNAt(proxy.Addr)}, proxy, "COMMIT")
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		server := postgres.Get(t).NewDatabase(t)
		proxy := testserver.NewPostgresProxy(t, server.Addr)
		direct := database{sqlstore.PostgreSQL, "pgx", server.URL()}
		fn(t, direct, database{sqlstore.PostgreSQL, "pgx", server.URLAt(proxy.Addr)}, proxy, "commit")
	})
}

// TestCommit_Unanswered loses the message with COMMIT, or the reply to it. Because of
// Commit, package once can still find out the outcome.
func TestCommit_Unanswered(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, direct, behind database, proxy *testserver.Proxy, commit string) {
		s := newShop(t, behind, direct)
		sound := newShop(t, direct, direct)
		for name, c := range map[string]struct {
			action    testserver.Action
			committed bool
		}{"reply": {testserver.CloseReply, true}, "request": {testserver.CloseRequest, false}} {
			t.Run(name, func(t *testing.T) {
				f := proxy.Inject(testserver.Statement(commit), c.action)
				out, err := s.runs.Do(t.Context(), order(name), s.work(t, name, (*sql.Tx).Commit))
				f.Await(t)
				if (err == nil) != c.committed || (out.Value != nil) != c.committed {
					t.Errorf("got %q and %v, want an answer %v", out.Value, err, c.committed)
				}
				if c.committed {
					sound.do(t, name, 1, true)
				} else {
					sound.do(t, name, 2, false)
				}
			})
		}
	})
}

// TestCommit_NotKnown checks that the outcome is unknown if the locks cannot be reached
// after Commit.
func TestCommit_NotKnown(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, direct, behind database, proxy *testserver.Proxy, _ string) {
		s := newShop(t, direct, behind)
		sound := newShop(t, direct, direct, once.Acquire(core.Wait(time.Minute)))
		for name, end := range map[string]func(*sql.Tx) error{"committed": (*sql.Tx).Commit, "rolled back": (*sql.Tx).Rollback} {
			t.Run(name, func(t *testing.T) {
				_, err := s.runs.Do(t.Context(), order(name), s.work(t, name, func(tx *sql.Tx) error {
					proxy.Down()
					return end(tx)
				}))
				if !errors.Is(err, core.ErrUnavailable) || !strings.Contains(err.Error(), "unknown whether") {
					t.Errorf("got %v, want %v, unknown", err, core.ErrUnavailable)
				}
				proxy.Up()
				// Until then the next call is refused, because the server counts as
				// down.
				eventually(t, func() error {
					l, err := s.locks.TryAcquire(t.Context(), "the server is back")
					if err != nil {
						return err
					}
					return l.Release(t.Context())
				})
				if name == "committed" {
					sound.do(t, name, 1, true)
				} else {
					sound.do(t, name, 2, false)
				}
			})
		}
	})
}

// TestCommit_MariaDBSnapshot checks a row that was changed since the snapshot of a
// transaction. MariaDB before 11.6.2 refuses the row if innodb_snapshot_isolation is
// on. Later servers accept the row, because Commit turns that setting off.
func TestCommit_MariaDBSnapshot(t *testing.T) {
	t.Parallel()
	notOnMySQL(t, "innodb_snapshot_isolation")
	d := onMariaDB(t, "innodb_snapshot_isolation=1")
	s := newShop(t, d, d, once.Acquire(core.TTL(time.Minute)))
	work := func(ctx context.Context) (once.Answer, error) {
		tx := s.begin(t, ctx)
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM orders").Scan(&n); err != nil {
			return once.Answer{}, err
		}
		// The watchdog does this at an extension.
		if _, err := s.db.ExecContext(ctx, "UPDATE lockkit_locks SET version=version+1"); err != nil {
			return once.Answer{}, err
		}
		a := once.Answer{Value: []byte("one by attempt 1")}
		if err := errors.Join(insert(ctx, tx, "one"), once.Commit(ctx, sqlstore.In(tx), a)); err != nil {
			return once.Answer{}, err
		}
		return a, tx.Commit()
	}
	var later bool
	if err := s.db.QueryRowContext(t.Context(), "SELECT /*M!110602 1=1 OR */ 1=0").Scan(&later); err != nil {
		t.Fatal(err)
	}
	if later {
		if _, err := s.runs.Do(t.Context(), order("one"), work); err != nil {
			t.Errorf("got %v, want nil", err)
		}
		s.do(t, "one", 1, true)
		return
	}
	s.failed(t, "one", "Record has changed", work)
	s.do(t, "one", 2, false)
}

// TestCommit_MariaDBAutocommitOff checks that Commit refuses a session with autocommit
// off. In such a session a transaction cannot be distinguished from the next one.
func TestCommit_MariaDBAutocommitOff(t *testing.T) {
	t.Parallel()
	d := onMariaDB(t)
	off := d
	off.dsn += "&autocommit=0"
	s := newShop(t, off, d)
	if err := s.failed(t, "off", "autocommit", s.work(t, "off", (*sql.Tx).Commit)); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("got %v, want %v", err, core.ErrInvalid)
	}
}

// TestCommit_MariaDBTimestamp checks that Commit refuses a transaction with a time of
// its own. By such a time an answer could expire at once, and its run would be repeated.
func TestCommit_MariaDBTimestamp(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"an hour ahead": time.Hour, "an hour behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := onMariaDB(t)
			s := d.store(t)
			run := claim("key", long)
			run.Record = &store.Record{Value: []byte("begun"), Retain: long}
			acquire(t, s, run)
			run.Record = &store.Record{Value: []byte("answer"), Attempt: 1, Done: true, Retain: long}
			d.dsn += fmt.Sprint("&timestamp=", time.Now().Add(off).Unix())
			tx, err := d.open(t).BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			err = sqlstore.In(tx).SaveRun(t.Context(), s, run)
			if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "timestamp") {
				t.Errorf("got %v, want %v with %q", err, store.ErrUnsupported, "timestamp")
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			state, err := s.Look(t.Context(), "key")
			if err != nil || state.Run == nil || state.Run.Done || len(state.Holds) != 1 {
				t.Errorf("got %+v and %v, want a held run that is not done", state, err)
			}
		})
	}
}

// TestCommit_MariaDBTooLong checks that Commit does not send an answer that is too long
// for the server.
func TestCommit_MariaDBTooLong(t *testing.T) {
	t.Parallel()
	d := onMariaDB(t)
	s := newShop(t, d, d)
	err := s.failed(t, "long", "max_allowed_packet", func(ctx context.Context) (once.Answer, error) {
		tx := s.begin(t, ctx)
		return once.Answer{}, errors.Join(insert(ctx, tx, "long"),
			once.Commit(ctx, sqlstore.In(tx), once.Answer{Value: make([]byte, 17<<20)}), tx.Rollback())
	})
	if !errors.Is(err, core.ErrInvalid) {
		t.Errorf("got %v, want %v", err, core.ErrInvalid)
	}
}

// TestMariaDB_TooLong checks an answer that is too long for the server. It is not sent,
// and its run is saved as done.
func TestMariaDB_TooLong(t *testing.T) {
	t.Parallel()
	d := onMariaDB(t)
	s := newShop(t, d, d)
	tooLong := once.Answer{Value: make([]byte, 17<<20)}
	_, err := s.runs.Do(t.Context(), order("long"), func(context.Context) (once.Answer, error) { return tooLong, nil })
	if err == nil || !strings.Contains(err.Error(), "max_allowed_packet") {
		t.Errorf("got %v, want an error that names max_allowed_packet", err)
	}
	_, err = s.runs.Do(t.Context(), order("long"), func(context.Context) (once.Answer, error) { return once.Answer{}, errors.New("run again") })
	if !errors.Is(err, once.ErrUnreplayable) {
		t.Errorf("a second call: got %v, want %v", err, once.ErrUnreplayable)
	}
	c := claim("held", long)
	c.Record = &store.Record{Value: []byte("begun"), Retain: long}
	acquire(t, s.in, c)
	c.Record = &store.Record{Value: tooLong.Value, Attempt: 1, Done: true, Retain: long}
	if err := s.in.Release(t.Context(), c); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("release: got %v, want %v", err, store.ErrInvalid)
	}
	if n := holders(t, s.in, "held"); n != 1 {
		t.Errorf("got %d holds, want 1", n)
	}
	p := rows.New(d.open(t), d.dialect.Dialect)
	old := load(t, p, "row", true)
	if ok, err := p.Save(t.Context(), "row", old, casstore.Entry{Version: version(), Value: tooLong.Value, Due: old.Now}); ok || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("save: got %v, %v, want %v", ok, err, store.ErrUnavailable)
	}
	fits := claim("fits", long)
	fits.Record = &store.Record{Value: []byte("begun"), Retain: long}
	acquire(t, s.in, fits)
	fits.Record = &store.Record{Value: make([]byte, 1<<20), Attempt: 1, Done: true, Retain: long}
	release(t, s.in, fits)
}

// TestCommit_OtherHolds checks that open transactions that have locked rows do not
// delay the extension of the other holds. These holds are extended together, because
// one by one each would need a round trip or two.
func TestCommit_OtherHolds(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, direct, behind database, proxy *testserver.Proxy, _ string) {
		p, db := direct.place(t)
		sound := newStore(t, db, direct)
		run := claim("run", long)
		claims := []store.Claim{run}
		run.Record = &store.Record{Value: []byte("begun"), Retain: long}
		acquire(t, sound, run)
		run.Record = &store.Record{Value: []byte("answer"), Attempt: 1, Done: true, Retain: long}
		for i := range 511 {
			c := claim(fmt.Sprint("key ", i), long)
			take(t, p, c)
			claims = append(claims, c)
		}
		var open [2]*sql.Tx
		for i := range open {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			open[i] = tx
		}
		s := newStore(t, behind.open(t), behind)
		proxy.Impair(testserver.Impairment{Delay: 2 * time.Millisecond}) // in each direction
		for locked, lock := range []func() error{
			func() error { return sqlstore.In(open[0]).SaveRun(t.Context(), sound, run) },
			func() error {
				_, err := open[1].ExecContext(t.Context(), "UPDATE "+locksTable(direct)+" SET due=due+1 WHERE name='key 0'")
				return err
			},
		} {
			if err := lock(); err != nil {
				t.Fatal(err)
			}
			// On a busy machine the time of a call can be too short for 512 holds.
			testserver.Eventually(t, long, "the others are extended", func() bool {
				proxy.Forget()
				var failed error
				for i, e := range s.Extend(t.Context(), claims) {
					if i <= locked && e.Err == nil || errors.Is(e.Err, store.ErrLost) {
						t.Errorf("%d locked rows, hold %d: got %v", locked+1, i, e.Err)
					}
					if i > locked && e.Err != nil {
						failed = e.Err
					}
				}
				if failed != nil {
					t.Logf("%d locked rows: %v", locked+1, failed)
				}
				return failed == nil
			})
			if n := len(proxy.Requests()); n > 100 {
				t.Errorf("%d locked rows: got %d requests, want 100 at most", locked+1, n)
			}
		}
		for _, tx := range open {
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
		}
		testserver.Eventually(t, long, "all are extended after a rollback", func() bool {
			var failed error
			for i, e := range s.Extend(t.Context(), claims) {
				if errors.Is(e.Err, store.ErrLost) {
					t.Errorf("after a rollback, hold %d: got %v, want nil", i, e.Err)
				}
				failed = cmp.Or(failed, e.Err)
			}
			if failed != nil {
				t.Logf("after a rollback: %v", failed)
			}
			return failed == nil
		})
	})
}

// TestCommit_FullPool checks that transactions may have all connections of the callers'
// pool for longer than a TTL.
func TestCommit_FullPool(t *testing.T) {
	t.Parallel()
	const ttl, callers = 6 * time.Second, 5
	d := onMariaDB(t)
	s := newShop(t, d, d, once.Acquire(core.TTL(ttl)))
	s.db.SetMaxOpenConns(callers)
	var all sync.WaitGroup
	for i := range callers {
		key := fmt.Sprint("key", i)
		all.Go(func() {
			_, err := s.runs.Do(t.Context(), order(key), func(ctx context.Context) (once.Answer, error) {
				tx := s.begin(t, ctx)
				select {
				case <-ctx.Done():
				case <-time.After(3 * ttl):
				}
				a := once.Answer{Value: []byte(key + " by attempt 1")}
				if err := errors.Join(insert(ctx, tx, key), once.Commit(ctx, sqlstore.In(tx), a)); err != nil {
					return a, err
				}
				return a, tx.Commit()
			})
			if err != nil {
				t.Errorf("got %v, want nil", err)
			}
		})
	}
	all.Wait()
	for i := range callers {
		s.do(t, fmt.Sprint("key", i), 1, true)
	}
}

// TestCommit_RoundTrips counts the requests of a run with Commit. The run's transaction
// sends nine requests, or eight on PostgreSQL: BEGIN, INSERT, COMMIT and the statements
// of Commit. Outside the transaction the run sends three, or four with a sweep.
func TestCommit_RoundTrips(t *testing.T) {
	t.Parallel()
	sent := func(proxy *testserver.Proxy) (n int) {
		for _, r := range proxy.Requests() {
			// pgx pings after a second.
			if len(r.Args) == 0 || !strings.Contains(r.Args[0], "-- ping") {
				n++
			}
		}
		return n
	}
	for _, part := range []string{"inside", "outside"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			behindProxy(t, func(t *testing.T, direct, behind database, proxy *testserver.Proxy, _ string) {
				orders, locks, want, more := behind, direct, 9, 0 // with BEGIN, INSERT and COMMIT
				if part == "outside" {
					orders, locks, want, more = direct, behind, 3, 1 // one more for a sweep
				} else if direct.driver == "pgx" {
					want = 8
				}
				_, db := locks.place(t)
				db.SetMaxOpenConns(1) // the connection that has prepared the statements
				in := newStore(t, db, locks)
				s := &shop{db: orders.orders(t), in: in}
				s.locks, s.runs = newRuns(t, in)
				s.db.SetMaxOpenConns(1)
				for i := range 2 {
					proxy.Forget()
					key := fmt.Sprint("key", i)
					if _, err := s.runs.Do(t.Context(), order(key), s.work(t, key, (*sql.Tx).Commit)); err != nil {
						t.Fatal(err)
					}
				}
				if n := sent(proxy); n < want || n > want+more {
					t.Errorf("got %d requests for a run, want %d: %v", n, want, proxy.Requests())
				}
			})
		})
	}
}

// TestMariaDB_CommitOnReplica checks that Commit is refused on a writable replica. The
// replica has the rows of the locks, but another database ID.
func TestMariaDB_CommitOnReplica(t *testing.T) {
	t.Parallel()
	notOnMySQL(t, "CHANGE MASTER")
	primary, replica := testserver.StartMariaDB(t, "log_bin = bin", "server_id = 1"), testserver.StartMariaDB(t, "server_id = 2")
	host, port, err := net.SplitHostPort(primary.Addr)
	if err != nil {
		t.Fatal(err)
	}
	replica.Exec("CHANGE MASTER TO MASTER_HOST='" + host + "', MASTER_PORT=" + port + ", MASTER_USER='root'; START SLAVE")
	in := primary.NewDatabase(t)
	locks := database{sqlstore.MySQL, "mysql", in.DSN()}
	locks.place(t)
	rows := func(table string) string {
		return replica.Exec("SELECT COUNT(*) FROM " + in.Exec("SELECT DATABASE()")[0] + "." + table)[0]
	}
	testserver.Eventually(t, time.Minute, "the replica follows", func() bool {
		return replica.Exec("SELECT COUNT(*) FROM information_schema.tables WHERE table_name='lockkit_version'")[0] == "1" && rows("lockkit_version") == "1"
	})
	s := newShop(t, database{sqlstore.MySQL, "mysql", in.DSNAt(replica.Addr)}, locks)
	_, err = s.runs.Do(t.Context(), order("replica"), func(ctx context.Context) (once.Answer, error) {
		testserver.Eventually(t, time.Minute, "the run is on the replica", func() bool { return rows("lockkit_locks") == "1" })
		return s.work(t, "replica", (*sql.Tx).Commit)(ctx)
	})
	if !errors.Is(err, core.ErrUnsupported) {
		t.Errorf("got %v, want %v", err, core.ErrUnsupported)
	}
	if n := s.count(t, "replica"); n != 0 {
		t.Errorf("got %d orders, want none", n)
	}
}

// TestMariaDB_CommitOnReader checks that Commit is refused on a writable replica that
// has answered the plain reads of the locks.
func TestMariaDB_CommitOnReader(t *testing.T) {
	t.Parallel()
	l := onMariaDBReplica(t)
	s := l.shop(t)
	s.db = database{l.direct.dialect, "mysql", l.reads}.open(t)
	for i, key := range []string{"first", "second"} {
		_, err := s.runs.Do(t.Context(), order(key), func(ctx context.Context) (once.Answer, error) {
			testserver.Eventually(t, time.Minute, "the run is on the replica", func() bool {
				var n int
				err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM lockkit_locks").Scan(&n)
				return err == nil && n > i
			})
			return s.work(t, key, (*sql.Tx).Commit)(ctx)
		})
		if !errors.Is(err, core.ErrUnsupported) {
			t.Errorf("%s: got %v, want %v", key, err, core.ErrUnsupported)
		}
		if n := s.count(t, key); n != 0 {
			t.Errorf("%s: got %d orders, want none", key, n)
		}
	}
}
