package pgstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// demote makes a server a standby, which waits for a primary forever.
func demote(t testing.TB, server *testserver.Postgres) {
	t.Helper()
	server.Exec("CHECKPOINT")
	if err := os.WriteFile(filepath.Join(server.Dir, "data", "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	server.Restart()
	if got := server.Exec("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_is_in_recovery(); COMMIT"); len(got) > 0 && got[0] != "t" {
		t.Fatalf("in recovery: got %v, want t", got)
	}
}

// fill makes a pool open n connections, and leaves them idle.
func fill(t testing.TB, pool *pgxpool.Pool, n int) {
	t.Helper()
	testserver.Eventually(t, patience, "the pool has its connections", func() bool {
		good := 0
		for range n {
			c, err := pool.Acquire(t.Context())
			if err != nil {
				return false
			}
			defer c.Release()
			// Acquire does not ping a connection that was used so recently.
			if c.Ping(t.Context()) == nil {
				good++
			}
		}
		return good == n
	})
}

// TestFailover moves a store to a standby and back (hazard 23). The store is unavailable
// on the standby. It works again on the primary, and keeps no connection to the standby.
func TestFailover(t *testing.T) {
	t.Parallel()
	primary, standby := start(t), start(t)
	demote(t, standby)
	for name, option := range map[string]string{
		"default isolation": "",
		"serializable":      "options=-c%20default_transaction_isolation%3Dserializable",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, last := range []string{"acquire", "extend"} {
				proxy := testserver.NewPostgresProxy(t, primary.Addr)
				pool := testclient.Postgres(t, primary.URLAt(proxy.Addr, "pool_max_conns=4", option))
				s := newStore(t, pool)
				held := claimed()
				acquire(t, s, held)
				extend := func() error { return s.Extend(t.Context(), []store.Claim{held})[0].Err }

				proxy.Retarget(standby.Addr)
				proxy.Sever()
				fill(t, pool, 4)
				_, err := s.Acquire(t.Context(), claimed())
				if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "read-only, perhaps a standby") {
					t.Errorf("acquire on a standby: got %v, want ErrUnavailable that names a standby", err)
				}
				if err := extend(); !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("extend on a standby: got %v, want ErrUnavailable", err)
				}
				if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "the server is a standby: connect to the primary") {
					t.Errorf("check on a standby: got %v, want that it is a standby", err)
				}

				fill(t, pool, 4)
				proxy.Retarget(primary.Addr)
				testserver.Eventually(t, patience, last+" after the move", func() bool {
					if last == "extend" {
						return extend() == nil
					}
					_, err := s.Acquire(t.Context(), claimed())
					return err == nil
				})
				if last == "extend" {
					continue
				}
				// No connection to the standby is left, not even for several calls at
				// once.
				var all sync.WaitGroup
				for range 4 {
					all.Go(func() {
						if _, err := s.Acquire(t.Context(), claimed()); err != nil {
							t.Errorf("acquire after the move: got %v, want a grant", err)
						}
					})
				}
				all.Wait()
			}
		})
	}
}

// TestFailover_FirstQuestion checks that the first call on a new connection names the
// standby. The call's first statement there only asks whether a pooler answers.
func TestFailover_FirstQuestion(t *testing.T) {
	t.Parallel()
	standby := start(t, "default_transaction_isolation = 'serializable'")
	demote(t, standby)
	// Without wake-ups no connection listens, which would learn of the standby first.
	s := newStore(t, testclient.Postgres(t, standby.URL()), pgstore.WithoutWakeUps())
	_, err := s.Acquire(t.Context(), claimed())
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "read-only, perhaps a standby") {
		t.Errorf("acquire on a standby: got %v, want ErrUnavailable that names a standby", err)
	}
}

// TestFailover_Listener checks that a waiter is woken by the server that grants, because
// the connection that listens also moves.
func TestFailover_Listener(t *testing.T) {
	t.Parallel()
	former, primary := start(t), start(t)
	proxy := testserver.NewPostgresProxy(t, former.Addr)
	pool := testclient.Postgres(t, former.URLAt(proxy.Addr, "pool_max_conns=4"))
	s := newStore(t, pool)
	held, waits := claimed(), store.Claim{}
	acquire(t, s, held)
	waits = exclusive(held.Key)
	waits.Wait = true
	wantIs(t, "acquire", second(s.Acquire(t.Context(), waits)), store.ErrBusy)
	woken, err := s.Watch(t.Context(), waits)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, pool, 4)
	// The connections of the former primary stay open.
	former.Exec("ALTER SYSTEM SET default_transaction_read_only = on")
	former.Exec("SELECT pg_reload_conf()")
	proxy.Retarget(primary.Addr)
	testserver.Eventually(t, patience, "the server is read-only", func() bool {
		_, err := s.Acquire(t.Context(), claimed())
		return errors.Is(err, store.ErrUnavailable)
	})
	testserver.Eventually(t, patience, "the watch is closed", func() bool {
		select {
		case _, open := <-woken:
			return !open
		default:
			return false
		}
	})
	testserver.Eventually(t, patience, "the key is granted by the primary", func() bool {
		_, err := s.Acquire(t.Context(), held)
		return err == nil
	})
	wantIs(t, "acquire", second(s.Acquire(t.Context(), waits)), store.ErrBusy)
	if woken, err = s.Watch(t.Context(), waits); err != nil {
		t.Fatal(err)
	}
	release(t, s, held)
	if _, open := <-woken; !open {
		t.Error("the second watch: got a closed channel, want a wake-up")
	}
}
