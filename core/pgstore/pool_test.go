package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestFrozenServer checks that calls return while the server is frozen, and that the
// holder is notified before another holder gets the key (hazard 23).
func TestFrozenServer(t *testing.T) {
	t.Parallel()
	server := start(t)
	const ttl = 3 * time.Second
	for i := range 3 {
		t.Run(fmt.Sprintf("trial %d", i), func(t *testing.T) {
			pool := testclient.Postgres(t, server.URL("pool_max_conns=4"))
			s, key := newStore(t, pool), fmt.Sprintf("frozen:%d", i)
			l, err := core.New(s)
			if err != nil {
				t.Fatal(err)
			}
			sent := time.Now()
			lease, err := l.Acquire(t.Context(), key, core.TTL(ttl))
			if err != nil {
				t.Fatal(err)
			}
			server.Pause()
			thaw := sync.OnceFunc(server.Resume)
			defer thaw()
			frozen := time.Now()

			// Callers return when their contexts are done, and otherwise after the time
			// limit of a call.
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := s.Acquire(ctx, exclusive("other")); err == nil || errors.Is(err, store.ErrBusy) {
				t.Errorf("acquire: got %v", err)
			}
			deadline := lease.Deadline() // a lost lease does not show its last deadline
			if took := time.Since(frozen); took > patience/4 {
				t.Errorf("returned after %v", took)
			}
			var all sync.WaitGroup
			for range 8 { // more calls than connections
				all.Go(func() {
					if err := s.Release(t.Context(), exclusive("other")); err == nil || errors.Is(err, store.ErrLost) {
						t.Errorf("release: got %v", err)
					}
				})
			}
			all.Wait()
			if took := time.Since(frozen); took > patience/2 {
				t.Errorf("the calls took %v", took)
			}

			// The holder is notified before the row can expire, at most a TTL after the
			// last confirmed extension. That extension was before the freeze.
			<-lease.Context().Done()
			notified := time.Now()
			wantIs(t, "cause", context.Cause(lease.Context()), store.ErrLost)
			if deadline.After(frozen.Add(ttl)) || deadline.Before(sent) {
				t.Errorf("trusted until %v after the freeze", deadline.Sub(frozen))
			}
			thaw()
			next := exclusive(key)
			testserver.Eventually(t, patience, "the key is free", func() bool {
				_, err := s.Acquire(t.Context(), next)
				return err == nil
			})
			if granted := time.Now(); granted.Before(notified) {
				t.Error("granted before the holder was notified")
			}
			release(t, s, next)
			_ = lease.Release(t.Context())
			if err := l.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	tally.Note(t, tally.Facts{Part: "matrix", Runs: 3, Faults: map[string]int{"server frozen": 3}, Violations: map[string]int{"overlaps": 0}})
}

// TestCancelledCallers checks that callers that leave do not close the pool's
// connections.
func TestCancelledCallers(t *testing.T) {
	server := database(t)
	pool := testclient.Postgres(t, server.URL("pool_max_conns=4"), func(c *pgxpool.Config) { c.MaxConnIdleTime = time.Hour })
	s := newStore(t, pool)
	acquire(t, s, claimed())
	cancelled := 0
	for i := range tally.Trials(2000) {
		c := claimed()
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%20)*5*time.Microsecond)
		if _, err := s.Acquire(ctx, c); err != nil {
			cancelled++
		}
		cancel()
		if err := s.Release(t.Context(), c); err != nil && !errors.Is(err, store.ErrLost) {
			t.Errorf("release: %v", err)
		}
	}
	if cancelled < 10 {
		t.Errorf("test setup: %d calls were cancelled", cancelled)
	}
	if n := pool.Stat().NewConnsCount(); n > 4 {
		t.Errorf("%d connections were made for a pool of 4", n)
	}
	if n := server.Exec("SELECT count(*) FROM lockkit.locks WHERE name LIKE 'key:%' AND " +
		"(until > " + micros + " OR convert_from(state, 'UTF8')::jsonb ? 'holds')")[0]; n != "1" {
		t.Errorf("%s holds are left, want the first one", n)
	}
}

// TestLateConnection checks a call that gets its connection late and must return soon
// after that. It must not close that connection, because a pool that is too small would
// lose all of its connections.
func TestLateConnection(t *testing.T) {
	t.Parallel()
	server := database(t)
	for try := 1; ; try++ {
		pool := testclient.Postgres(t, server.URL("pool_max_conns=1"))
		s, c := newStore(t, pool), claimed()
		acquire(t, newStore(t, testclient.Postgres(t, server.URL())), c)
		tx := lockRow(t, server, c.Key)
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		released := time.AfterFunc(s.Limit()*7/10, conn.Release)
		defer released.Stop()
		if err := s.Release(t.Context(), c); err == nil {
			t.Error("release: got no error while the row is locked")
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if conn, err = pool.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		took := time.Since(start)
		conn.Release()
		n := pool.Stat().NewConnsCount()
		if n == 1 {
			return
		}
		// A statement that itself takes too long closes its connection, for example on a
		// machine that stands still.
		if took < s.Limit()+time.Second/2 || try == 10 {
			t.Fatalf("%d connections were made for a pool of 1", n)
		}
	}
}

// TestLockedRows_CallersLeave counts the sessions that wait at the server for locked
// rows. Callers that leave again and again do not increase that number, because their
// calls keep the connections of the pool. The statements of a process that has vanished
// end as well.
func TestLockedRows_CallersLeave(t *testing.T) {
	t.Parallel()
	const callers = 8
	server := database(t)
	proxy := testserver.NewPostgresProxy(t, server.Addr)
	s := newStore(t, testclient.Postgres(t, server.URLAt(proxy.Addr, fmt.Sprint("pool_max_conns=", callers))))
	direct := newStore(t, testclient.Postgres(t, server.URL()))
	var claims []store.Claim
	for i := range callers {
		claims = append(claims, claimed())
		acquire(t, direct, claims[i])
		lockRow(t, server, claims[i].Key)
	}
	waiting := func() int {
		return len(server.Exec("SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"))
	}
	// begin begins a call for each row, and returns a function that waits for them.
	begin := func(ctx context.Context) (wait func()) {
		var all sync.WaitGroup
		for i, c := range claims {
			all.Go(func() {
				var err error
				if i%2 == 0 {
					_, err = s.Acquire(ctx, exclusive(c.Key))
				} else {
					err = s.Release(ctx, c)
				}
				if err == nil {
					t.Error("got no error beside a locked row")
				}
			})
		}
		return all.Wait
	}

	most := 0
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		begin(ctx)()
		cancel()
		most = max(most, waiting())
	}
	if most == 0 || most > 2*callers { // twice, because a busy server is slow to end a statement
		t.Errorf("callers left: got %d sessions that wait at once, want 1 to %d", most, 2*callers)
	}
	testserver.Eventually(t, patience, "no session waits", func() bool { return waiting() == 0 })
	wait := begin(t.Context())
	testserver.Eventually(t, patience, "a session waits", func() bool { return waiting() > 0 })
	proxy.Down() // also for requests to cancel a statement
	wait()
	testserver.Eventually(t, patience, "no session of a vanished process waits", func() bool { return waiting() == 0 })
}
