package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// replicaOf starts a replica and waits until it is in sync.
func replicaOf(t testing.TB, master *testserver.Redis) *testserver.Redis {
	t.Helper()
	replica := testserver.StartRedis(t, "--replicaof", "127.0.0.1", fmt.Sprint(master.Port()))
	asks := testclient.Redis(t, replica.Addr)
	testserver.Eventually(t, soon, "the replica is in sync", func() bool {
		return strings.Contains(asks.Info(context.Background(), "replication").Val(), "master_link_status:up")
	})
	// A WAIT counts the replica only after its first acknowledgement.
	asks = testclient.Redis(t, master.Addr)
	testserver.Eventually(t, soon, "the replica acknowledges", func() bool {
		return asks.Wait(context.Background(), 1, 100*time.Millisecond).Val() > 0
	})
	return replica
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	for way, edit := range ways {
		if edit == nil {
			edit = func(*redis.Options) {}
		}
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			master := testserver.StartRedis(t)
			replica := replicaOf(t, master)
			r := newRig(t, master, edit, redisstore.WithReplicas(1, 2*time.Second))
			hasty := newStore(t, testclient.Redis(t, r.proxy.Addr, edit), redisstore.WithReplicas(1, 100*time.Millisecond))
			other := newStore(t, testclient.Redis(t, master.Addr))
			t.Run("replica has the grant", func(t *testing.T) {
				asks := testclient.Redis(t, replica.Addr)
				for range 20 {
					c := claimed()
					acquire(t, r.store, c)
					if n := asks.Exists(t.Context(), stored(c)).Val(); n != 1 {
						t.Fatal("the replica does not have it")
					}
					acquire(t, r.store, nested(c))
				}
			})
			t.Run("busy and lost", func(t *testing.T) {
				c := claimed()
				acquire(t, other, c)
				_, err := r.store.Acquire(t.Context(), claimOf(c.Key))
				wantIs(t, "acquire", err, store.ErrBusy)
				gone := claimed()
				wantIs(t, "release", r.store.Release(t.Context(), gone), store.ErrLost)
				_, err = r.store.Acquire(t.Context(), gone)
				wantIs(t, "acquire", err, store.ErrLost)
			})
			t.Run("unknown script", func(t *testing.T) {
				if err := r.asks.ScriptFlush(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				acquire(t, r.store, forms["hash fields"]())
			})
			for what, c := range map[string]store.Claim{"SET": forms["a string"](), "script": forms["hash fields"]()} {
				t.Run(what+" and WAIT share a connection", func(t *testing.T) { // hazard 32
					r.proxy.Forget()
					acquire(t, r.store, c)
					var links []int
					for _, c := range r.proxy.Requests() {
						if c.Script == "acquire" || c.Name == "wait" {
							links = append(links, c.Link)
						}
					}
					if len(links) != 2 || links[0] != links[1] {
						t.Errorf("the connections were %v", links)
					}
				})
			}
			sent := func() string { return strings.Join(names(r.proxy), " ") }
			t.Run("free key takes one trip", func(t *testing.T) {
				r.proxy.Forget()
				c, done := claimed(), make(chan struct{})
				held := r.proxy.Inject(testserver.Match{Command: "set", Arg: stored(c)}, testserver.HoldReply)
				go func() {
					defer close(done)
					acquire(t, r.store, c)
				}()
				testserver.Eventually(t, soon, "all is sent before a reply has come", func() bool { return sent() == "set time wait" })
				held.Deliver()
				<-done
				if got := sent(); got != "set time wait" {
					t.Errorf("an acquire is %s", got)
				}
			})
			t.Run("taken key or refused SET", func(t *testing.T) {
				c := claimed()
				acquire(t, other, c)
				for _, want := range []string{"set time wait evalsha wait", "evalsha wait"} {
					r.proxy.Forget()
					_, err := r.store.Acquire(t.Context(), claimOf(c.Key))
					wantIs(t, "acquire", err, store.ErrBusy)
					if got := sent(); got != want {
						t.Errorf("it is %s, want %s", got, want)
					}
				}
				for _, text := range []string{"OOM command not allowed", "READONLY no", "MOVED 1 127.0.0.1:1", "ASK 1 127.0.0.1:1"} {
					r.proxy.Inject(testserver.Match{Command: "set"}, testserver.ErrorReply(text))
					r.proxy.Forget()
					acquire(t, r.store, claimed())
					if got := sent(); got != "set time wait evalsha wait" {
						t.Errorf("after %s it is %s", text, got)
					}
				}
			})
			t.Run("refused TIME", func(t *testing.T) {
				refused := r.proxy.Inject(testserver.Match{Command: "time", Times: -1}, testserver.ErrorReply("ERR unknown command 'time'"))
				defer r.proxy.Remove(refused)
				c := claimed()
				first := acquire(t, r.store, c)
				release(t, r.store, c)
				if next := acquire(t, r.store, claimOf(c.Key)); next.Token <= first.Token {
					t.Errorf("token %d after %d", next.Token, first.Token)
				}
				replica.Pause()
				defer replica.Resume()
				r.proxy.Forget()
				c = claimed()
				_, err := hasty.Acquire(t.Context(), c)
				wantIs(t, "acquire", err, store.ErrUnavailable)
				if got := sent(); r.exists(t, c) || got != "set time wait evalsha" {
					t.Errorf("it is %s, and the key is taken: %v", got, r.exists(t, c))
				}
			})
			t.Run("unseen grant is released", func(t *testing.T) { // hazard 18
				held := claimed()
				acquire(t, r.store, held)
				replica.Pause()
				defer replica.Resume()
				for n := range 50 {
					c := forms[[]string{"a string", "hash fields"}[n%2]]()
					_, err := hasty.Acquire(t.Context(), c)
					wantIs(t, "acquire", err, store.ErrUnavailable)
					if err == nil || !strings.Contains(err.Error(), "0 of 1 replicas") {
						t.Errorf("got %v, want one that counts", err)
					}
					if r.exists(t, c) {
						t.Fatal("the key is taken")
					}
				}
				inner := nested(held)
				_, err := hasty.Acquire(t.Context(), inner)
				wantIs(t, "acquire again", err, store.ErrUnavailable)
				wantIs(t, "extend", extend(r.store, inner), store.ErrLost)
				if err := extend(r.store, held); err != nil {
					t.Errorf("the outer hold: %v", err)
				}
			})
			t.Run("failed release of unseen grant", func(t *testing.T) {
				replica.Pause()
				defer replica.Resume()
				c := claimed()
				r.proxy.Inject(testserver.Match{Script: "release", Arg: c.Lease}, testserver.CloseReply)
				_, err := hasty.Acquire(t.Context(), c)
				unknown(t, "acquire", err)
				d := claimed()
				r.proxy.Inject(testserver.Match{Script: "release", Arg: d.Lease}, testserver.CloseRequest)
				_, err = hasty.Acquire(t.Context(), d)
				unknown(t, "acquire", err)
				wantIs(t, "release", errors.Join(r.direct.Release(t.Context(), d)), nil)
				r.proxy.Forget()
				for _, c := range []store.Claim{c, d} {
					_, err = hasty.Acquire(t.Context(), c)
					unknown(t, "acquire again", err)
				}
				if got := sent(); got != "" {
					t.Errorf("%s is sent while the release may still arrive", got)
				}
			})
			t.Run("caller is lost during release", func(t *testing.T) { // hazard 18
				replica.Pause()
				defer replica.Resume()
				c := claimed()
				held := r.proxy.Inject(testserver.Match{Script: "release", Arg: c.Lease}, testserver.HoldRequest)
				defer held.Deliver()
				err := whenFired(t, held, 0, func(ctx context.Context) error {
					_, err := hasty.Acquire(ctx, c)
					return err
				})
				unknown(t, "acquire", err)
				_, err = hasty.Acquire(t.Context(), c)
				unknown(t, "acquire again", err)
			})
			t.Run("caller leaves a hanging replica", func(t *testing.T) {
				replica.Pause()
				defer replica.Resume()
				c := claimed()
				err := within(t, 50*time.Millisecond, func(ctx context.Context) error {
					_, err := r.store.Acquire(ctx, c)
					return err
				})
				if err == nil {
					t.Error("granted without a replica")
				}
				_ = r.direct.Release(t.Context(), c)
			})
			t.Run("lost reply", func(t *testing.T) {
				// Each proxy is new, because an older proxy can still have the WAIT of a
				// caller that has left.
				start := func() (*testserver.Proxy, *redisstore.Store) {
					proxy := testserver.NewRedisProxy(t, master.Addr)
					return proxy, newStore(t, testclient.Redis(t, proxy.Addr, edit), redisstore.WithReplicas(1, 2*time.Second))
				}
				for _, command := range []string{"set", "time", "wait"} {
					for _, lost := range []testserver.Action{testserver.CloseReply, testserver.CloseRequest} {
						proxy, s := start()
						c := claimed()
						fault := proxy.Inject(testserver.Match{Command: command}, lost)
						err := hit(t, fault, func() error {
							_, err := s.Acquire(t.Context(), c)
							return err
						})
						unknown(t, "acquire", err)
						if err := r.direct.Release(t.Context(), c); err != nil && (command != "set" || lost != testserver.CloseRequest) {
							t.Errorf("%s: release: %v", command, err)
						}
					}
				}
				proxy, s := start()
				c := claimed()
				proxy.Inject(testserver.Match{Command: "wait"}, testserver.ErrorReply("NOPERM not you"))
				_, err := s.Acquire(t.Context(), c)
				unknown(t, "acquire", err)
				release(t, r.direct, c)
			})
		})
	}
	t.Run("plain keys", func(t *testing.T) {
		t.Parallel()
		master := testserver.StartRedis(t)
		replica := replicaOf(t, master)
		proxy := testserver.NewRedisProxy(t, master.Addr)
		s := newStore(t, testclient.Redis(t, proxy.Addr), redisstore.WithPlainKeys(), redisstore.WithReplicas(1, time.Second))
		acquire(t, s, claimed())
		if got := strings.Join(names(proxy), " "); got != "set wait" {
			t.Errorf("an acquire is %s", got)
		}
		replica.Pause()
		defer replica.Resume()
		c := claimed()
		_, err := s.Acquire(t.Context(), c)
		wantIs(t, "acquire", err, store.ErrUnavailable)
		if testclient.Redis(t, master.Addr).Exists(t.Context(), "lk1:"+c.Key).Val() != 0 {
			t.Error("the key is taken")
		}
	})
}

// TestLimitWithReplicas checks that Limit also bounds an Acquire that waits for
// replicas twice or releases its grant.
func TestLimitWithReplicas(t *testing.T) {
	t.Parallel()
	master := testserver.StartRedis(t)
	replica := replicaOf(t, master)
	proxy := testserver.NewRedisProxy(t, master.Addr)
	s := newStore(t, testclient.Redis(t, proxy.Addr), redisstore.WithReplicas(1, 1700*time.Millisecond))
	taken, free := claimed(), claimed()
	acquire(t, s, taken)
	replica.Pause()
	t.Cleanup(replica.Resume)
	proxy.Inject(testserver.Match{Script: "release"}, testserver.DropRequest)
	for name, c := range map[string]store.Claim{"taken key": claimOf(taken.Key), "released key": free} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			_, err := s.Acquire(context.Background(), c)
			if took := time.Since(start); err == nil || took > s.Limit()+1200*time.Millisecond {
				t.Errorf("it took %v and got %v", took, err)
			}
		})
	}
}

func TestStoreWithReplicas(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	master := testserver.StartRedis(t)
	replicaOf(t, master)
	conformance(t, master, func(t testing.TB) store.Store {
		return newStore(t, testclient.Redis(t, master.Addr), redisstore.WithReplicas(1, 2*time.Second))
	}, storetest.SameToken)
}

// names returns the commands that a proxy has seen, without commands that set up
// or test a connection.
func names(proxy *testserver.Proxy) (all []string) {
	for _, q := range proxy.Requests() {
		if q.Name != "hello" && q.Name != "client" && q.Name != "ping" {
			all = append(all, q.Name)
		}
	}
	return all
}
