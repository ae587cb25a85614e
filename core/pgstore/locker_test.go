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

// TestLocker runs several Lockers, which stand for processes, on one server. The sum of
// the weights of the leases never exceeds the limit, and each caller is granted.
func TestLocker(t *testing.T) {
	server := database(t)
	rounds := tally.Trials(100)
	for _, c := range []struct {
		name  string
		limit int64
		opts  func(i int) (weight int64, opts []core.AcquireOption)
	}{
		{"a mutex", 1, func(int) (int64, []core.AcquireOption) { return 1, nil }},
		{"a fair mutex", 1, func(int) (int64, []core.AcquireOption) { return 1, []core.AcquireOption{core.Fair()} }},
		{"three permits", 3, func(int) (int64, []core.AcquireOption) { return 1, []core.AcquireOption{core.Permits(1, 3)} }},
		{"five fair permits", 5, func(i int) (int64, []core.AcquireOption) {
			n := 1 + i%3
			return int64(n), []core.AcquireOption{core.Permits(n, 5), core.Fair()}
		}},
		{"readers and writers", 100, func(i int) (int64, []core.AcquireOption) {
			if i%3 == 0 {
				return 100, nil
			}
			return 1, []core.AcquireOption{core.Shared()}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var inside, grants atomic.Int64
			var all sync.WaitGroup
			for i := range 6 {
				l := newLocker(t, server.URL("pool_max_conns=3"))
				for range 2 {
					all.Go(func() {
						for n := range rounds {
							weight, opts := c.opts(i + n)
							ran := false
							err := unlocked(func() error {
								err := l.Do(t.Context(), "crowd:"+c.name, func(context.Context) error {
									ran = true
									grants.Add(1)
									if sum := inside.Add(weight); sum > c.limit {
										t.Errorf("weight %d is inside, at most %d is allowed", sum, c.limit)
									}
									time.Sleep(rand.N(2 * time.Millisecond))
									inside.Add(-weight)
									return nil
								}, opts...)
								if ran && errors.Is(err, store.ErrUnavailable) {
									return nil // the release continues in the background
								}
								return err
							})
							if err != nil {
								t.Error(err)
							}
						}
					})
				}
			}
			all.Wait()
			if want := int64(12 * rounds); grants.Load() != want {
				t.Errorf("%d grants, want %d", grants.Load(), want)
			}
			tally.Note(t, tally.Facts{
				Part: "processes", Runs: 1, Grants: int(grants.Load()), Violations: map[string]int{"overlaps": 0},
			})
		})
	}

	// Another process joins a lease. With KeepFor the key stays taken after both leases
	// are released.
	t.Run("joined and kept", func(t *testing.T) {
		t.Parallel()
		a, b := newLocker(t, server.URL()), newLocker(t, server.URL())
		outer, err := a.Acquire(t.Context(), "joined")
		if err != nil {
			t.Fatal(err)
		}
		inner, err := b.TryAcquire(core.ContextWithOwner(t.Context(), outer.Owner()), "joined", core.KeepFor(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if inner.Token() != outer.Token() || inner.Owner() != outer.Owner() {
			t.Errorf("token %d of owner %q, want those of the outer lease", inner.Token(), inner.Owner())
		}
		if err := errors.Join(outer.Release(t.Context()), inner.Release(t.Context())); err != nil {
			t.Error(err)
		}
		if _, err := b.TryAcquire(t.Context(), "joined"); !errors.Is(err, store.ErrBusy) {
			t.Errorf("got %v, want %v", err, store.ErrBusy)
		}
	})
}

// TestNoDeadlock checks that no client and no session of the server waits forever. Many
// clients each want several of a few keys, in any order, while leases are extended in
// batches.
func TestNoDeadlock(t *testing.T) {
	server := database(t, "deadlock_timeout = '50ms'", "log_lock_waits = on")
	const keys = 5
	clients := max(8, tally.AllTrials(64))
	var grants, extended atomic.Int64
	var inside [keys]atomic.Int64
	var all sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 15*patience)
	defer cancel()
	lockers := make([]*core.Locker, 8)
	stores := make([]*pgstore.Store, len(lockers))
	for i := range lockers {
		stores[i] = newStore(t, testclient.Postgres(t, server.URL("pool_max_conns=8")))
		var err error
		if lockers[i], err = core.New(stores[i]); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lockers[i].Close(context.Background()) })
	}
	stop := make(chan struct{})
	var extenders sync.WaitGroup
	for i := range stores {
		// These goroutines extend all keys at once, in a random order.
		extenders.Go(func() {
			held := make([]store.Claim, keys)
			for k := range held {
				held[k] = exclusive(fmt.Sprintf("few:%d", k))
				held[k].Weight = 1
			}
			for {
				select {
				case <-stop:
					return
				case <-time.After(rand.N(20 * time.Millisecond)):
				}
				rand.Shuffle(keys, func(a, b int) { held[a], held[b] = held[b], held[a] })
				var all []store.Extension
				_ = unlocked(func() error {
					all = stores[i].Extend(ctx, held)
					for _, x := range all {
						if errors.Is(x.Err, store.ErrUnavailable) {
							return x.Err
						}
					}
					return nil
				})
				for _, x := range all {
					if !errors.Is(x.Err, store.ErrLost) {
						t.Errorf("extend: %v", x.Err)
					}
					extended.Add(1)
				}
			}
		})
	}
	for i := range clients {
		all.Go(func() {
			for range max(4, tally.Trials(40)/4) {
				order := rand.Perm(keys)[:2+rand.N(2)]
				also := make([]string, 0, keys)
				for _, k := range order[1:] {
					also = append(also, fmt.Sprintf("few:%d", k))
				}
				var lease *core.Lease
				err := unlocked(func() (err error) {
					lease, err = lockers[i%len(lockers)].Acquire(ctx, fmt.Sprintf("few:%d", order[0]), core.Also(also...))
					return err
				})
				if err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				grants.Add(1)
				for _, k := range order {
					if inside[k].Add(1) != 1 {
						t.Errorf("another caller has key %d already", k)
					}
				}
				if err := unlocked(func() error { return lease.Extend(ctx, time.Minute) }); err != nil {
					t.Errorf("extend: %v", err)
				}
				for _, k := range order {
					inside[k].Add(-1)
				}
				// A release that times out continues in the background.
				if err := lease.Release(ctx); err != nil && !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("release: %v", err)
				}
			}
		})
	}
	all.Wait()
	close(stop)
	extenders.Wait()
	if extended.Load() == 0 {
		t.Error("test setup: nothing was extended")
	}
	for k := range keys {
		testserver.Eventually(t, patience, "each key is free", func() bool {
			lease, err := lockers[0].TryAcquire(t.Context(), fmt.Sprintf("few:%d", k))
			if err == nil {
				_ = lease.Release(t.Context())
			}
			return err == nil
		})
	}
	if n := server.Exec("SELECT sum(deadlocks) FROM pg_stat_database WHERE datname = current_database()")[0]; n != "0" {
		t.Errorf("the server has found %s deadlocks", n)
	}
	tally.Note(t, tally.Facts{
		Part: "processes", Runs: 1, Grants: int(grants.Load()), Violations: map[string]int{"overlaps": 0, "deadlocks": 0},
	})
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	server := database(t)
	proxy := testserver.NewPostgresProxy(t, server.Addr)
	s := newStore(t, testclient.Postgres(t, server.URLAt(proxy.Addr, "pool_max_conns=1", "pool_min_conns=1")))
	warm := func() { // opens the connection and prepares the statements
		c := claimed()
		acquire(t, s, c)
		release(t, s, c)
	}
	warm()
	trips := func(what string, want int, call func()) {
		t.Helper()
		proxy.Forget()
		call()
		// The pool pings a connection that was idle for a second. Now and then an
		// acquire looks for expired rows.
		if n := proxy.Count(testserver.Match{}) - len(proxy.Statements("-- ping")) - len(proxy.Statements(sweeping)); n != want {
			t.Errorf("%s: %d round trips, want %d: %q", what, n, want, proxy.Statements())
		}
	}
	c := claimed()
	trips("acquire of a free key", 1, func() { acquire(t, s, c) })
	trips("acquire of a held key", 2, func() { wantIs(t, "acquire", second(s.Acquire(t.Context(), exclusive(c.Key))), store.ErrBusy) })
	trips("extension", 1, func() { s.Extend(t.Context(), []store.Claim{c}) })
	many, other := []store.Claim{c}, newStore(t, testclient.Postgres(t, server.URL()))
	for range 511 {
		many = append(many, claimed())
		acquire(t, other, many[len(many)-1])
	}
	all := func(lost int) {
		for i, x := range s.Extend(t.Context(), many) {
			if x.Err != nil && (i >= lost || !errors.Is(x.Err, store.ErrLost)) {
				t.Errorf("extension %d: got %v", i, x.Err)
			}
		}
	}
	trips("extension of 512", 1, func() { all(0) })
	many[0] = claimed()
	trips("extension of 512, one lost", 4, func() { all(1) })
	trips("release", 1, func() { release(t, s, c) })
	trips("acquire of a used key", 1, func() { acquire(t, s, c) })
	run := claimed()
	run.Record = &store.Record{Value: []byte("begun"), Retain: time.Minute}
	trips("a run", 2, func() { acquire(t, s, run) })
	last := run
	last.Record = &store.Record{Value: []byte("answer"), Attempt: 1, Done: true, Retain: time.Minute}
	trips("its answer", 2, func() { release(t, s, last) })
	trips("a replay", 1, func() {
		if g := acquire(t, s, run); g.Record == nil || !g.Record.Done {
			t.Errorf("got %+v", g)
		}
	})

	// With one snapshot per transaction the numbers are the same. Only the first
	// conflict takes three more round trips.
	t.Run("with one snapshot", func(t *testing.T) {
		server := database(t, "default_transaction_isolation = 'repeatable read'")
		proxy = testserver.NewPostgresProxy(t, server.Addr)
		s = newStore(t, testclient.Postgres(t, server.URLAt(proxy.Addr, "pool_max_conns=1", "pool_min_conns=1")))
		warm()
		trips("acquire", 1, func() { acquire(t, s, c) })
		trips("release", 1, func() { release(t, s, c) })
		meet := func() {
			tx := changeRow(t, server, c.Key)
			done := make(chan error, 1)
			go func() { done <- second(s.Acquire(t.Context(), c)) }()
			testserver.Eventually(t, patience, "the acquire waits for the row", func() bool {
				return server.Exec("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")[0] == "1"
			})
			if err := errors.Join(tx.Commit(t.Context()), <-done); err != nil {
				t.Fatal(err)
			}
		}
		trips("acquire that meets another transaction", 4, meet)
		trips("release", 1, func() { release(t, s, c) })
		trips("acquire that meets another one", 1, meet)
	})
}
