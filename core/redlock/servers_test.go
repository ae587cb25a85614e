package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore/redistest"
	"github.com/lockkit/lockkit/core/redlock"
)

const slow = 5 * time.Second // a node's budget on a busy machine

// fit returns s once all its nodes are there and count.
func fit(t testing.TB, s *redlock.Store) *redlock.Store {
	t.Helper()
	redistest.Eventually(t, time.Minute, "the nodes are fit", func() bool { return s.Check(t.Context()) == nil })
	return s
}

// acquire fails the test unless c is granted.
func acquire(t *testing.T, s core.Store, c core.Claim) core.Grant {
	t.Helper()
	g, err := s.Acquire(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// k of five servers are killed, or frozen: up to two do no harm, three refuse and
// leave nothing. hazard 52
func TestServersAway(t *testing.T) {
	t.Parallel()
	for how, take := range map[string]func(s *redistest.Server){
		"killed": (*redistest.Server).Kill,
		"frozen": (*redistest.Server).Pause,
	} {
		for k := range 4 {
			t.Run(fmt.Sprintf("%d of 5 %s", k, how), func(t *testing.T) {
				t.Parallel()
				all, connect := servers(t, 5)
				s := fit(t, newStore(t, connect(t), redlock.WithNodeTimeout(slow)))
				acquire(t, s, claim("before"))
				if err := s.Release(t.Context(), claim("before")); err != nil {
					t.Fatal(err)
				}
				for _, server := range all[:k] {
					take(server)
				}
				c, start := claim("ours"), time.Now()
				_, err := s.Acquire(t.Context(), c)
				if took := time.Since(start); took > s.Limit() {
					t.Errorf("took %v", took)
				}
				if granted := err == nil; granted != (k <= 2) || errors.Is(err, core.ErrBusy) {
					t.Fatalf("got %v with %d servers away", err, k)
				}
				if err := s.Release(t.Context(), c); k <= 2 && err != nil {
					t.Errorf("release: %v", err)
				}
				for _, server := range all[k:] {
					redistest.Eventually(t, 5*time.Second, "nothing is left", func() bool {
						n, err := server.Client().HLen(t.Context(), "lk1:{order:1}").Result()
						held, err2 := server.Client().HExists(t.Context(), "lk1:{order:1}", "h:ours").Result()
						return err == nil && err2 == nil && (n == 0 || !held)
					})
				}
			})
		}
	}
}

// Two servers restart empty, one after the other, under a held lock. hazard 30
func TestRestartedEmpty(t *testing.T) {
	t.Parallel()
	for name, with := range map[string]struct {
		opts []redlock.Option
		safe bool
	}{
		"with quarantine and healing": {nil, true},
		"with quarantine alone":       {[]redlock.Option{redlock.WithoutHealing()}, true},
		"limit: with neither":         {[]redlock.Option{redlock.WithoutHealing(), redlock.WithQuarantine(0)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, connect := servers(t, 3)
			opts := append(with.opts, redlock.WithNodeTimeout(slow))
			ours, theirs := fit(t, newStore(t, connect(t), opts...)), fit(t, newStore(t, connect(t), opts...))
			c := claim("ours")
			c.TTL = 30 * time.Second
			acquire(t, ours, c)
			if _, err := theirs.Acquire(t.Context(), claim("theirs")); !errors.Is(err, core.ErrBusy) {
				t.Fatalf("got %v, want busy", err)
			}
			for _, server := range all[:2] {
				server.RestartEmpty()
				ours.Extend(t.Context(), []core.Claim{c})
			}
			late := newStore(t, connect(t), opts...) // a process that starts now
			for i, s := range []core.Store{theirs, late} {
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
}

// hazard 53
func TestSameServerTwice(t *testing.T) {
	t.Parallel()
	all, connect := servers(t, 3)
	nodes := connect(t)
	t.Run("by another address", func(t *testing.T) {
		proxy := redistest.NewProxy(t, all[0].Addr)
		s := newStore(t, append(nodes[:2:2], redisNode(t, proxy.Addr)), redlock.WithNodeTimeout(slow))
		if _, err := s.Acquire(t.Context(), claim("ours")); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("acquire: got %v, want %v", err, core.ErrInvalid)
		}
		if err := s.Check(t.Context()); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("check: got %v, want %v", err, core.ErrInvalid)
		}
	})
	t.Run("a replica", func(t *testing.T) {
		replica := redistest.Start(t, "--replicaof", "127.0.0.1", fmt.Sprint(all[0].Port()))
		s := newStore(t, append(nodes[:2:2], redisNode(t, replica.Addr)), redlock.WithNodeTimeout(slow))
		if _, err := s.Acquire(t.Context(), claim("ours")); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("acquire: got %v, want %v", err, core.ErrInvalid)
		}
	})
	t.Run("three servers are fit", func(t *testing.T) {
		fit(t, newStore(t, nodes, redlock.WithNodeTimeout(slow)))
	})
}

// A holder is extended by its Locker, and told when the majority is cut off.
// hazard 46
func TestCutOffMajority(t *testing.T) {
	t.Parallel()
	all, _ := servers(t, 3)
	var nodes []core.Store
	var proxies []*redistest.Proxy
	for _, s := range all {
		p := redistest.NewProxy(t, s.Addr)
		proxies, nodes = append(proxies, p), append(nodes, redisNode(t, p.Addr))
	}
	locker, err := core.New(fit(t, newStore(t, nodes, redlock.WithNodeTimeout(slow))))
	if err != nil {
		t.Fatal(err)
	}
	lease, err := locker.Acquire(t.Context(), "order:1", core.TTL(9*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	first := lease.Deadline()
	proxies[0].Partition()
	redistest.Eventually(t, 20*time.Second, "extended by two of three", func() bool { return lease.Deadline().After(first) })
	cut := time.Now()
	proxies[1].Partition()
	select {
	case <-lease.Context().Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the holder was not told")
	}
	if cause := context.Cause(lease.Context()); !errors.Is(cause, core.ErrLost) {
		t.Errorf("told %v, want %v", cause, core.ErrLost)
	}
	if after := time.Since(cut); after > 12*time.Second {
		t.Errorf("told %v after the cut", after)
	}
	for _, p := range proxies {
		p.Heal()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = lease.Release(ctx)
	if err := locker.Close(ctx); err != nil {
		t.Error(err)
	}
}
