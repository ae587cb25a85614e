package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

const (
	slow = 5 * time.Second // a node time-out that is long enough for a busy machine
	// patience limits the wait for an event. On a machine that also runs busy loops, a
	// minute can pass without a single answer in time.
	patience = 3 * time.Minute
	early    = 45 * time.Second // before a TTL of a minute has expired
)

func fit(t testing.TB, s *redlock.Store) *redlock.Store {
	t.Helper()
	testserver.Eventually(t, patience, "the nodes are fit", func() bool { return s.Check(t.Context()) == nil })
	return s
}

// acquire acquires c by a single call.
func acquire(t *testing.T, s store.Store, c store.Claim) store.Grant {
	t.Helper()
	g, err := s.Acquire(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// acquireSoon acquires c, which must not be busy. On a busy machine a majority of real
// servers can answer too late, so it repeats the call.
func acquireSoon(t *testing.T, s store.Store, c store.Claim) (g store.Grant) {
	t.Helper()
	testserver.Eventually(t, patience, "the claim is granted", func() bool {
		var err error
		if g, err = s.Acquire(t.Context(), c); errors.Is(err, store.ErrBusy) {
			t.Fatal(err)
		}
		return err == nil
	})
	return g
}

// reach is a server, the proxy in front of it, and a switch that slows down its node.
type reach struct {
	server *testserver.Redis
	proxy  *testserver.Proxy
	slow   *atomic.Bool
}

// TestServersAway kills, freezes, cuts off or slows down k of five servers. With up to
// two servers away, locks are granted. With three away, acquires fail. No claim is left
// at any server, even after the server is back. hazards 52 and 54
func TestServersAway(t *testing.T) {
	t.Parallel()
	for how, do := range map[string]struct{ take, back func(r reach) }{
		"servers killed": {func(r reach) { r.server.Kill() }, func(r reach) { r.server.Restart() }},
		"servers frozen": {func(r reach) { r.server.Pause() }, func(r reach) { r.server.Resume() }},
		"network cut":    {func(r reach) { r.proxy.Partition() }, func(r reach) { r.proxy.Heal() }},
		"servers slow":   {func(r reach) { r.slow.Store(true) }, func(r reach) { r.slow.Store(false) }},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			for k := range 4 {
				if k < 2 && testing.Short() {
					continue // the case of two servers away also has a majority
				}
				serversAway(t, k, do.take, do.back)
			}
		})
	}
}

func serversAway(t *testing.T, k int, take, back func(r reach)) {
	t.Run(fmt.Sprintf("%d of 5", k), func(t *testing.T) {
		var all []reach
		var nodes []store.Store
		for range 5 {
			r := reach{server: testserver.StartRedis(t), slow: new(atomic.Bool)}
			r.proxy = testserver.NewRedisProxy(t, r.server.Addr)
			all = append(all, r)
			nodes = append(nodes, storetest.Faulty(redisNode(t, r.proxy.Addr), faultsOf(t, func() storetest.Fault {
				if r.slow.Load() {
					// Both delays are beyond Limit.
					return storetest.Fault{Delay: 1500 * time.Millisecond, ReplyDelay: 1500 * time.Millisecond}
				}
				return storetest.Fault{}
			}, storetest.OpAcquire, storetest.OpExtend, storetest.OpRelease)))
		}
		s := newStore(t, nodes)
		var ours []string
		cycle := func() (err, released error) {
			c := claim(fmt.Sprint("ours", len(ours))) // a released lease is not granted again
			ours = append(ours, "h:"+c.Lease)
			c.TTL = time.Minute // nothing expires
			_, err = s.Acquire(t.Context(), c)
			return err, s.Release(t.Context(), c)
		}
		granted := func() bool {
			err, released := cycle()
			return err == nil && released == nil
		}
		// The servers have just started, so the first cycles can fail.
		testserver.Eventually(t, patience, "the key is taken and released", granted)
		for _, r := range all[:k] {
			take(r)
		}
		if k <= 2 {
			testserver.Eventually(t, patience, "a majority grants the key", granted)
		} else if err, _ := cycle(); err == nil || errors.Is(err, store.ErrBusy) {
			t.Fatalf("got %v with %d servers away", err, k)
		}
		gone := func(r reach) {
			t.Helper()
			client := testclient.Redis(t, r.server.Addr)
			testserver.Eventually(t, early, "nothing is left", func() bool {
				held, err := testclient.Fields(t.Context(), client, "lk2:{order:1}")
				return err == nil && !slices.ContainsFunc(ours, func(f string) bool { return held[f] != "" })
			})
		}
		for _, r := range all[k:] {
			gone(r)
		}
		for _, r := range all[:k] {
			back(r)
		}
		testserver.Eventually(t, early, "no cleanup task is left", func() bool {
			_, tasks := s.Unsettled()
			return tasks == 0
		})
		for _, r := range all[:k] {
			gone(r)
		}
	})
}

// TestDefaultBudget uses the default node time-out and freezes two of five servers. A
// Locker still gets its locks. When the frozen servers continue, its requests to them
// leave no hold. hazard 52
func TestDefaultBudget(t *testing.T) {
	t.Parallel()
	all, connect := servers(t, 5)
	locker, err := core.New(fit(t, newStore(t, connect(t))))
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range all[:2] {
		server.Pause()
	}
	const cycles = 10
	for i := range cycles {
		testserver.Eventually(t, patience, "a grant", func() bool {
			lease, err := locker.Acquire(t.Context(), fmt.Sprint("order:", i), core.TTL(time.Minute), core.Wait(10*time.Second))
			if err != nil {
				return false // the machine was stalled
			}
			_ = lease.Release(t.Context()) // continues in the background if it fails
			return true
		})
	}
	tally.Note(t, tally.Facts{Part: "processes", Grants: cycles, Faults: map[string]int{"frozen servers": 2}})
	for _, server := range all[:2] {
		server.Resume()
	}
	closing, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := locker.Close(closing); err != nil {
		t.Error(err)
	}
	for _, server := range all {
		client := testclient.Redis(t, server.Addr)
		testserver.Eventually(t, early, "nothing is held", func() bool {
			for i := range cycles {
				fields, err := testclient.Fields(t.Context(), client, fmt.Sprintf("lk2:{order:%d}", i))
				if err != nil {
					return false
				}
				for f := range fields {
					if strings.HasPrefix(f, "h:") {
						return false
					}
				}
			}
			return true
		})
	}
}

// TestRestartedEmpty restarts servers without their data while a lock is held. It
// restarts two of three servers, one after the other, or all three at once. hazard 30
func TestRestartedEmpty(t *testing.T) {
	t.Parallel()
	for name, with := range map[string]struct {
		opts []redlock.Option
		safe bool
	}{
		"with quarantine and healing": {nil, true},
		"with quarantine alone":       {[]redlock.Option{redlock.WithoutHealing()}, true},
		"limit with neither":          {[]redlock.Option{redlock.WithoutHealing(), redlock.WithQuarantine(0)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, connect := servers(t, 3)
			opts := append(with.opts, redlock.WithNodeTimeout(slow))
			ours, theirs := fit(t, newStore(t, connect(t), opts...)), fit(t, newStore(t, connect(t), opts...))
			c := claim("ours")
			c.TTL = 30 * time.Second
			acquireSoon(t, ours, c)
			if _, err := theirs.Acquire(t.Context(), claim("theirs")); !errors.Is(err, store.ErrBusy) {
				t.Fatalf("got %v, want busy", err)
			}
			for _, server := range all[:2] {
				server.RestartEmpty()
				ours.Extend(t.Context(), []store.Claim{c})
			}
			late := newStore(t, connect(t), opts...) // a process that starts now
			for i, s := range []store.Store{theirs, late} {
				_, err := s.Acquire(t.Context(), claim(fmt.Sprint("theirs", i)))
				if with.safe == (err == nil) {
					t.Fatalf("rival %d: got %v, and it is safe: %v", i, err, with.safe)
				}
				if !with.safe {
					return
				}
			}
		})
	}
	// A Check opens the first connection to the restarted server.
	t.Run("check of an idle quorum", func(t *testing.T) {
		t.Parallel()
		all, connect := servers(t, 3)
		s := fit(t, newStore(t, connect(t), redlock.WithNodeTimeout(slow)))
		all[0].RestartEmpty()
		if err := s.Check(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("got %v of a quorum with a restarted server", err)
		}
	})
	// Three servers that restart at once look like a new cluster.
	t.Run("limit of all at once", func(t *testing.T) {
		t.Parallel()
		all, connect := servers(t, 3)
		ours := fit(t, newStore(t, connect(t), redlock.WithNodeTimeout(slow)))
		c := claim("ours")
		c.TTL = 30 * time.Second
		acquireSoon(t, ours, c)
		for _, server := range all {
			server.RestartEmpty()
		}
		acquireSoon(t, fit(t, newStore(t, connect(t), redlock.WithNodeTimeout(slow))), claim("theirs"))
	})
}

// refused waits until Acquire fails with store.ErrInvalid, and fails the test if the
// claim is granted. On a busy machine the nodes can still be in quarantine at first.
func refused(t *testing.T, s *redlock.Store) {
	t.Helper()
	testserver.Eventually(t, patience, "the nodes are refused", func() bool {
		_, err := s.Acquire(t.Context(), claim("ours"))
		if err == nil {
			t.Fatal("got a grant, want a refusal")
		}
		return errors.Is(err, store.ErrInvalid)
	})
}

// TestSameServerTwice checks that claims are refused if two nodes are on the same
// server, or if one of them is on a replica. hazard 53
func TestSameServerTwice(t *testing.T) {
	t.Parallel()
	all, connect := servers(t, 3)
	nodes := connect(t)
	t.Run("by another address", func(t *testing.T) {
		proxy := testserver.NewRedisProxy(t, all[0].Addr)
		s := newStore(t, append(nodes[:2:2], redisNode(t, proxy.Addr)), redlock.WithNodeTimeout(slow))
		refused(t, s)
		if err := s.Check(t.Context()); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("check: got %v, want %v", err, store.ErrInvalid)
		}
	})
	t.Run("a replica", func(t *testing.T) {
		replica := testserver.StartRedis(t, "--replicaof", "127.0.0.1", fmt.Sprint(all[0].Port()))
		s := newStore(t, append(nodes[:2:2], redisNode(t, replica.Addr)), redlock.WithNodeTimeout(slow))
		refused(t, s)
	})
	t.Run("three servers are fit", func(t *testing.T) {
		fit(t, newStore(t, nodes, redlock.WithNodeTimeout(slow)))
	})
}

// TestCutOffMajority extends a lease with two of three nodes. After the majority is cut
// off, the holder learns of the loss. hazard 46
func TestCutOffMajority(t *testing.T) {
	t.Parallel()
	all, _ := servers(t, 3)
	var nodes []store.Store
	var proxies []*testserver.Proxy
	for _, s := range all {
		p := testserver.NewRedisProxy(t, s.Addr)
		proxies, nodes = append(proxies, p), append(nodes, redisNode(t, p.Addr))
	}
	locker, err := core.New(fit(t, newStore(t, nodes, redlock.WithNodeTimeout(slow))))
	if err != nil {
		t.Fatal(err)
	}
	var lease *core.Lease
	testserver.Eventually(t, patience, "a grant", func() bool {
		lease, err = locker.Acquire(t.Context(), "order:1", core.TTL(9*time.Second))
		return err == nil
	})
	first := lease.Deadline()
	for _, server := range all { // the grant did not wait for the third node
		client := testclient.Redis(t, server.Addr)
		testserver.Eventually(t, patience, "each has the lock", func() bool {
			n, err := client.Exists(t.Context(), "lk2:{order:1}").Result()
			return err == nil && n == 1
		})
	}
	proxies[0].Partition()
	testserver.Eventually(t, patience, "extended by two of three", func() bool { return lease.Deadline().After(first) })
	cut := time.Now()
	proxies[1].Partition()
	select {
	case <-lease.Context().Done():
	case <-time.After(20 * time.Second):
		t.Fatal("got no loss")
	}
	if cause := context.Cause(lease.Context()); !errors.Is(cause, store.ErrLost) {
		t.Errorf("got %v, want %v", cause, store.ErrLost)
	}
	if after := time.Since(cut); after > 20*time.Second {
		t.Errorf("got the loss %v after the cut", after)
	}
	for _, p := range proxies {
		p.Heal()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	_ = lease.Release(ctx) // the lease may be lost, and the release slow
	cancel()
	ctx, cancel = context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := locker.Close(ctx); err != nil {
		t.Error(err)
	}
}
