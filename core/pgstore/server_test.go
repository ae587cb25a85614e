package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// newLocker returns a Locker on a new Store, which stands for a process.
func newLocker(t testing.TB, url string, opts ...pgstore.Option) *core.Locker {
	t.Helper()
	l, err := core.New(newStore(t, testclient.Postgres(t, url), opts...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

func TestRestart(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"synchronous_commit = on", "synchronous_commit = off"} {
		// Holds and records outlast a crash.
		t.Run("crash with "+setting, func(t *testing.T) {
			t.Parallel()
			server := start(t, setting)
			s := newStore(t, testclient.Postgres(t, server.URL()))
			for range 3 {
				lock, run := claimed(), claimed()
				run.Record = &store.Record{Value: []byte("begun"), Retain: time.Minute}
				g := acquire(t, s, lock)
				acquire(t, s, run)
				last := run
				last.Record = &store.Record{Value: []byte("answer"), Attempt: 1, Done: true, Retain: time.Minute}
				release(t, s, last)
				server.Restart()
				// The pool's connections lead to the old server.
				testserver.Eventually(t, patience, "the store answers", func() bool {
					_, err := s.Acquire(t.Context(), exclusive("probe:"+lock.Key))
					return err == nil
				})
				held(t, s, lock, true)
				if again := acquire(t, s, lock); again.Token != g.Token {
					t.Errorf("got token %d, want %d", again.Token, g.Token)
				}
				again := run
				again.Lease = "another"
				if r := acquire(t, s, again).Record; r == nil || !r.Done || string(r.Value) != "answer" {
					t.Errorf("got %+v, want the answer", r)
				}
				release(t, s, lock)
			}
		})
	}

	// A lease survives a short outage. In a long outage the holder is notified of the
	// loss in time.
	t.Run("lease through a restart", func(t *testing.T) {
		t.Parallel()
		server := start(t)
		l, other := newLocker(t, server.URL()), newLocker(t, server.URL())
		lease, err := l.Acquire(t.Context(), "order:42", core.TTL(15*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		server.Restart()
		before := lease.Deadline()
		testserver.Eventually(t, 2*patience, "the lease is extended", func() bool { return lease.Deadline().After(before) })
		if err := lease.Context().Err(); err != nil {
			t.Fatalf("the lease was lost: %v", err)
		}
		server.Kill()
		deadline := lease.Deadline()
		<-lease.Context().Done()
		if late := time.Since(deadline); late > patience/4 {
			t.Errorf("notified %v after its deadline", late)
		}
		wantIs(t, "cause", context.Cause(lease.Context()), store.ErrLost)
		server.Restart()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		next, err := other.Acquire(ctx, "order:42")
		if err != nil {
			t.Fatal(err)
		}
		if next.Token() <= lease.Token() {
			t.Errorf("got token %d after %d", next.Token(), lease.Token())
		}
		_ = lease.Release(t.Context())
		if err := next.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// holders contains the leases of the callers that have the key. An expired lease, for
// example after the machine stood still, does not count as an overlap.
type holders struct {
	mu  sync.Mutex
	all map[*core.Lease]bool
}

// enter adds l, and returns the number of other leases that are valid at the same time
// as l.
func (h *holders) enter(l *core.Lease) (beside int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for other := range h.all {
		mine, theirs := l.Deadline(), other.Deadline()
		if now := time.Now(); now.Before(mine) && now.Before(theirs) {
			beside++
		}
	}
	if h.all == nil {
		h.all = make(map[*core.Lease]bool)
	}
	h.all[l] = true
	return beside
}

func (h *holders) leave(l *core.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, l)
}

// TestTerminatedConnections makes an administrator end connections while locks are
// taken, extended, waited for and released. It checks that no two callers hold a key at
// once.
func TestTerminatedConnections(t *testing.T) {
	server := database(t)
	var inside [2]holders
	var grants, ended, overlaps atomic.Int64
	stop := make(chan struct{})
	var killer, workers sync.WaitGroup
	killer.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(rand.N(10 * time.Millisecond)):
			}
			for range server.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity " +
				"WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND random() < 0.3") {
				ended.Add(1)
			}
		}
	})
	rounds := max(10, tally.Trials(100)) // with fewer rounds too few connections are ended
	for i := range 6 {
		l := newLocker(t, server.URL("pool_max_conns=4"))
		workers.Go(func() {
			for n := range rounds {
				key := (i + n) % 2
				ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
				lease, err := l.Acquire(ctx, fmt.Sprintf("terminated:%d", key), core.TTL(2*time.Second))
				cancel()
				if errors.Is(err, store.ErrUnavailable) {
					continue // three attempts failed
				}
				if err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				grants.Add(1)
				overlaps.Add(inside[key].enter(lease))
				time.Sleep(rand.N(2 * time.Millisecond))
				_ = lease.Extend(t.Context(), 2*time.Second)
				inside[key].leave(lease)
				// If the reply to a release was lost, the repeated release finds that
				// the hold is gone.
				if err := lease.Release(t.Context()); err != nil && !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrLost) {
					t.Logf("release: %v", err)
				}
			}
		})
	}
	workers.Wait()
	close(stop)
	killer.Wait()
	if overlaps.Load() > 0 {
		t.Errorf("%d times two callers were in at once", overlaps.Load())
	}
	if ended.Load() < min(20, int64(2*rounds)) || grants.Load() < int64(rounds) {
		t.Errorf("test setup: %d connections ended, %d grants", ended.Load(), grants.Load())
	}
	tally.Note(t, tally.Facts{
		Part: "matrix", Runs: 1, Grants: int(grants.Load()), Faults: map[string]int{"connection terminated": int(ended.Load())},
		Violations: map[string]int{"overlaps": int(overlaps.Load())},
	})
}

// TestBrokenListener checks that a watch is closed if its connection breaks, and that
// the next Watch works.
func TestBrokenListener(t *testing.T) {
	t.Parallel()
	server := database(t)
	s, other := newStore(t, testclient.Postgres(t, server.URL())), newStore(t, testclient.Postgres(t, server.URL()))
	for range 5 {
		c := claimed()
		w := exclusive(c.Key)
		w.Wait = true
		acquire(t, other, c)
		wantIs(t, "acquire", second(s.Acquire(t.Context(), w)), store.ErrBusy)
		woken, err := s.Watch(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		const listens = " FROM pg_stat_activity WHERE datname = current_database() AND " +
			"(query LIKE 'LISTEN%' OR query IN ('-- ping', 'SELECT pg_backend_pid()'))"
		// A session that was ended is listed until it has cleaned up.
		testserver.Eventually(t, patience, "one connection listens", func() bool {
			return len(server.Exec("SELECT pid"+listens)) == 1
		})
		if n := len(server.Exec("SELECT pg_terminate_backend(pid)" + listens)); n != 1 {
			t.Fatalf("%d connections were ended, want 1", n)
		}
		for open := true; open; {
			select {
			case _, open = <-woken:
			case <-time.After(patience):
				t.Fatal("the watch was not notified")
			}
		}
		again, err := s.Watch(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		release(t, other, c)
		select {
		case _, open := <-again:
			if !open {
				t.Error("the second watch broke")
			}
		case <-time.After(patience):
			t.Error("the second watch was not woken")
		}
	}
}
