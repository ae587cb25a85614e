package zkstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/core/zkstore"
)

// TestLostReplies loses the replies to the creation of a claim's node. A claim that is
// sent again ends up with one node. A claim that is released or abandoned leaves no
// node. hazard 56
func TestLostReplies(t *testing.T) {
	t.Parallel()
	n := tally.Trials(100)
	server := testserver.SharedZooKeeper(t)
	admin := testclient.ZooKeeper(t, session, server)
	var bit, orphans atomic.Int64
	t.Run("all trials", func(t *testing.T) {
		for i := range n {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				key := "lost" + strconv.Itoa(i)
				proxy := testserver.NewZooKeeperProxy(t, server)
				s, _ := storeOn(t, session, []string{proxy.Addr})
				if i%2 == 1 { // the key is held
					outside, _ := storeOn(t, session, []string{server})
					holder := exclusive(key)
					grant(t, outside, holder)
					defer func() {
						if err := outside.Release(context.Background(), holder); err != nil {
							t.Error(err)
						}
						eventually(t, "nothing is left", func() bool { return len(places(t, admin, key)) == 0 })
					}()
				} else {
					c := exclusive(key) // creates the key's node
					grant(t, s, c)
					if err := s.Release(t.Context(), c); err != nil {
						t.Fatal(err)
					}
				}
				var lost atomic.Int64
				proxy.OnRequest(func(r testserver.Request) testserver.Action {
					if r.Creates() && lost.Add(1) <= int64(1+i%3) {
						bit.Add(1)
						return testserver.CloseReply
					}
					return testserver.Pass
				})
				c := exclusive(key)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				_, err := s.Acquire(ctx, c)
				if err == nil || errors.Is(err, store.ErrUnavailable) {
					t.Fatalf("got %v, want an error that leaves the outcome open", err)
				}
				switch i % 4 {
				case 0: // sends the claim again
					for err != nil && ctx.Err() == nil {
						_, err = s.Acquire(ctx, c)
					}
					if err != nil {
						t.Fatal(err)
					}
					eventually(t, "there is one node", func() bool { return len(places(t, admin, key)) == 1 })
					if err := s.Release(ctx, c); err != nil {
						t.Error(err)
					}
				case 1, 2: // releases
					for err != nil && !errors.Is(err, store.ErrLost) && ctx.Err() == nil {
						err = s.Release(ctx, c)
					}
				default: // does nothing
				}
				eventually(t, "nothing is left of it", func() bool { return len(places(t, admin, key)) == i%2 })
			})
		}
	})
	for i := range n {
		orphans.Add(int64(len(places(t, admin, "lost"+strconv.Itoa(i)))))
	}
	if bit.Load() < int64(n) {
		t.Errorf("test setup: got %d lost replies in %d trials", bit.Load(), n)
	}
	if orphans.Load() != 0 {
		t.Errorf("%d nodes are left", orphans.Load())
	}
	tally.Note(t, tally.Facts{
		Part: "limits", Runs: n, Faults: map[string]int{"lost replies": int(bit.Load())},
		Violations: map[string]int{"orphan nodes": int(orphans.Load())},
	})
}

// TestExtend_JoinedAfterLostReply loses the reply to an extension, before another session
// extends the lease too. The first Store finds both writes at once, and its release
// still frees the key.
func TestExtend_JoinedAfterLostReply(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	admin := testclient.ZooKeeper(t, session, server)
	proxy := testserver.NewZooKeeperProxy(t, server)
	s, _ := storeOn(t, session, []string{proxy.Addr})
	other, _ := storeOn(t, session, []string{server})
	claims := []store.Claim{exclusive("joined")}
	grant(t, s, claims[0])
	proxy.Inject(testserver.Match{Command: "multi"}, testserver.CloseReply)
	if x := s.Extend(t.Context(), claims)[0]; x.Err == nil || errors.Is(x.Err, store.ErrLost) {
		t.Fatalf("got %v, want an error that leaves the outcome open", x.Err)
	}
	for _, extends := range []*zkstore.Store{other, s} {
		if x := extends.Extend(t.Context(), claims)[0]; x.Err != nil {
			t.Fatal(x.Err)
		}
	}
	if nodes := places(t, admin, "joined"); len(nodes) != 2 {
		t.Fatalf("got %q, want a node of each session", nodes)
	}
	if err := s.Release(t.Context(), claims[0]); err != nil {
		t.Fatal(err)
	}
	if nodes := places(t, admin, "joined"); len(nodes) != 0 {
		t.Errorf("got %q after the release, want no node", nodes)
	}
}

// TestBrokenConnections breaks connections at random requests while four Stores, which
// stand for processes, take turns at a key. No two Stores hold the key at once, and in
// the end no node is left.
func TestBrokenConnections(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	admin := testclient.ZooKeeper(t, session, server)
	const processes = 4
	rounds := tally.AllTrials(12)
	var inside, overlaps, broken, grants atomic.Int64
	var last atomic.Uint64
	var wg sync.WaitGroup
	for p := range processes {
		proxy := testserver.NewZooKeeperProxy(t, server)
		s, _ := storeOn(t, session, []string{proxy.Addr})
		l := lockerOn(t, s)
		random := rand.New(rand.NewPCG(1, uint64(p)))
		var mu sync.Mutex
		var over atomic.Bool
		proxy.OnRequest(func(testserver.Request) testserver.Action {
			mu.Lock()
			defer mu.Unlock()
			if over.Load() || random.IntN(10) > 0 {
				return testserver.Pass
			}
			broken.Add(1)
			return []testserver.Action{testserver.CloseRequest, testserver.CloseReply}[random.IntN(2)]
		})
		wg.Go(func() {
			defer over.Store(true)
			for i := range rounds {
				var opts []core.AcquireOption
				if i%2 == 0 {
					opts = append(opts, core.Fair())
				}
				ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
				lease, err := l.Acquire(ctx, "storm", append(opts, core.Wait(2*patience))...)
				for errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil {
					lease, err = l.Acquire(ctx, "storm", append(opts, core.Wait(2*patience))...)
				}
				cancel()
				if err != nil {
					t.Errorf("process %d: %v", p, err)
					return
				}
				if inside.Add(1) > 1 && lease.Context().Err() == nil {
					overlaps.Add(1)
				}
				if before := last.Swap(lease.Token()); before >= lease.Token() {
					t.Errorf("got token %d after %d", lease.Token(), before)
				}
				grants.Add(1)
				time.Sleep(2 * time.Millisecond)
				inside.Add(-1)
				// A release without a reply is completed in the background.
				_ = lease.Release(context.Background())
			}
		})
	}
	wg.Wait()
	if overlaps.Load() > 0 {
		t.Errorf("two were in %d times", overlaps.Load())
	}
	if broken.Load() < int64(processes*rounds/4) {
		t.Errorf("test setup: got %d broken connections", broken.Load())
	}
	eventually(t, "nothing is left", func() bool { return len(places(t, admin, "storm")) == 0 })
	t.Logf("%d grants, %d broken connections", grants.Load(), broken.Load())
}

// TestCancelled checks that a canceled acquire leaves no node, whenever it is canceled.
func TestCancelled(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	admin := testclient.ZooKeeper(t, session, server)
	s, _ := storeOn(t, session, []string{server})
	l := lockerOn(t, s)
	holder := exclusive("cancelled")
	grant(t, s, holder)
	var wg sync.WaitGroup
	for i := range tally.Trials(1000) {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*100*time.Microsecond)
			defer cancel()
			if i%2 == 0 { // the store without a Locker
				if _, err := s.Acquire(ctx, waiting("cancelled")); err == nil {
					t.Error("granted a key that is held")
				} else if ctx.Err() == nil && !errors.Is(err, store.ErrBusy) {
					t.Error(err)
				}
				return
			}
			if lease, err := l.Acquire(ctx, "cancelled", core.Fair()); err == nil {
				t.Errorf("granted a key that is held: %v", lease)
			}
		})
	}
	wg.Wait()
	// Waiters of a Store without a Locker keep their places for ten seconds.
	eventually(t, "only the holder is left", func() bool { return len(places(t, admin, "cancelled")) == 1 })
	if err := s.Release(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is left", func() bool { return len(places(t, admin, "cancelled")) == 0 })
}

// TestTokens checks that tokens still grow after the server or an operator has deleted
// the key's node. The new node numbers its children from 0 again. hazard 57
func TestTokens(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	admin := testclient.ZooKeeper(t, session, server)
	s, _ := storeOn(t, session, []string{server})
	var last uint64
	restarts, highest := 0, ""
	const rounds = 20
	for i := range rounds {
		for range 3 {
			c := exclusive("numbers")
			g := grant(t, s, c)
			names := places(t, admin, "numbers")
			if len(names) != 1 {
				t.Fatalf("got %v, want one node", names)
			}
			number := names[0][len(names[0])-10:]
			if number < highest {
				restarts++
			}
			highest = number
			_, stat, err := admin.Exists("/lk1/numbers/" + names[0])
			if err != nil || stat == nil || g.Token != uint64(stat.Czxid)*store.TokenStep {
				t.Errorf("got token %d, want 64 times the node's creation: %+v, %v", g.Token, stat, err)
			}
			if g.Token < last+store.TokenStep {
				t.Errorf("got token %d after %d", g.Token, last)
			}
			last = g.Token
			if err := s.Release(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		if i%2 == 0 {
			if err := admin.Delete("/lk1/numbers", -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
				t.Fatal(err)
			}
		} else if i == 1 {
			eventually(t, "the server has removed the empty node", func() bool {
				there, _, err := admin.Exists("/lk1/numbers")
				return err == nil && !there
			})
		}
	}
	if restarts < rounds/2 {
		t.Errorf("test setup: got %d restarts of the numbers", restarts)
	}
	tally.Note(t, tally.Facts{
		Part: "limits", Runs: rounds, Faults: map[string]int{"numbers began again": restarts},
		Grants: 3 * rounds, Violations: map[string]int{"tokens back": 0},
	})
}

// TestStore_EveryCallTwice sends every extension and release twice. A claim describes
// the desired state, so the second call changes nothing.
func TestStore_EveryCallTwice(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	conformance(t, func(t testing.TB) store.Store {
		faults := new(storetest.Faults)
		faults.Hook(func(op storetest.Op, _ []store.Claim) storetest.Fault {
			// An acquire is not doubled. If its first call were refused and its second
			// granted, the suite would not know of the hold. The suite itself sends
			// claims again.
			return storetest.Fault{Twice: op != storetest.OpAcquire}
		})
		t.Cleanup(faults.Wait)
		return storetest.Faulty(newStore(t, []string{server}), faults)
	})
}
