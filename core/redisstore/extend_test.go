package redisstore_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestExtendInHalfACluster extends the holds in one part of a Cluster while another
// part is unknown or silent.
func TestExtendInHalfACluster(t *testing.T) {
	t.Parallel()
	batchOf := func(n int) []store.Claim {
		var batch []store.Claim
		for range n {
			batch = append(batch, claimed())
		}
		return batch
	}
	t.Run("slot without a node", func(t *testing.T) {
		t.Parallel()
		node := testserver.StartRedis(t, "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
		node.AddSlots(0, 8191)
		testserver.Eventually(t, soon, "the cluster is up", func() bool {
			// The key {06S} is in slot 0.
			return testclient.Redis(t, node.Addr).Set(t.Context(), "{06S}", "", 0).Err() == nil
		})
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{node.Addr}})
		t.Cleanup(func() { client.Close() })
		s := newStore(t, client)
		batch := batchOf(60)
		held := make([]bool, len(batch))
		for i, c := range batch {
			_, err := s.Acquire(t.Context(), c)
			held[i] = err == nil
			if err != nil {
				wantIs(t, "acquire", err, store.ErrUnavailable)
			}
		}
		served := 0
		for i, x := range s.Extend(t.Context(), batch) {
			if held[i] != (x.Err == nil) {
				t.Errorf("answer %d: got %v, held %v", i, x.Err, held[i])
			}
			if held[i] {
				served++
			} else {
				wantIs(t, "extend", x.Err, store.ErrUnavailable)
			}
		}
		if served == 0 || served == len(batch) {
			t.Errorf("%d of %d claims have a server", served, len(batch))
		}
	})
	for way, edit := range map[string]func(*redis.ClusterOptions){
		"context on the socket": func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = true },
		"default options":       func(o *redis.ClusterOptions) {},
	} {
		t.Run("hanging node "+way, func(t *testing.T) {
			t.Parallel()
			cluster := testserver.StartCluster(t, false)
			o := &redis.ClusterOptions{Addrs: []string{cluster.Nodes[0].Addr}}
			edit(o)
			client := redis.NewClusterClient(o)
			t.Cleanup(func() { client.Close() })
			s := newStore(t, client)
			batch := batchOf(60)
			hangs := make([]bool, len(batch))
			for i, c := range batch {
				acquire(t, s, c)
				master, err := client.MasterForKey(t.Context(), stored(c))
				if err != nil {
					t.Fatal(err)
				}
				hangs[i] = master.Options().Addr == cluster.Nodes[1].Addr
			}
			for _, x := range s.Extend(t.Context(), batch) {
				if x.Err != nil {
					t.Fatal(x.Err)
				}
			}
			cluster.Nodes[1].Pause()
			defer cluster.Nodes[1].Resume()
			var answers []store.Extension
			_ = within(t, 1500*time.Millisecond, func(ctx context.Context) error {
				answers = s.Extend(ctx, batch)
				return nil
			})
			for i, x := range answers {
				if hangs[i] {
					unknown(t, "extend", x.Err)
					wantIs(t, "extend", x.Err, context.DeadlineExceeded)
				} else if x.Err != nil {
					t.Errorf("answer %d, of a node that serves: %v", i, x.Err)
				}
			}
		})
	}
}

// readers returns n held readers of one key.
func readers(t *testing.T, s *redisstore.Store, n int) []store.Claim {
	t.Helper()
	key, all := claimed().Key, make([]store.Claim, n)
	for i := range all {
		all[i] = claimOf(key)
		all[i].Weight = 1
		acquire(t, s, all[i])
	}
	return all
}

// TestExtendBesideOthers extends one of many holds. Nothing else may change, even if the
// record's value looks like holds. A hold that already lasts longer must not be
// shortened.
func TestExtendBesideOthers(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	asks := testclient.Redis(t, server.Addr)
	s := newStore(t, asks)
	all := readers(t, s, 20)
	gone, run := all[0], claimOf(all[0].Key)
	run.Weight, run.TTL = 1, time.Hour
	like := fmt.Sprintf(" %d 30000 o 1", time.Now().UnixMicro())
	run.Record = &store.Record{Value: []byte("\th:" + gone.Lease + like + "\tv \th:" + all[1].Lease + like), Retain: time.Minute}
	acquire(t, s, run)
	release(t, s, gone)
	stores := func() map[string]string {
		m, err := testclient.Fields(t.Context(), asks, stored(run))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	was := stores()
	wantIs(t, "extend", extend(s, gone), store.ErrLost)
	c := all[1]
	c.TTL = 10 * time.Minute
	for range 2 {
		if err := extend(s, c); err != nil {
			t.Fatal(err)
		}
	}
	c.TTL = time.Minute // must not shorten
	if err := extend(s, c); err != nil {
		t.Fatal(err)
	}
	is := stores()
	_, old, _ := strings.Cut(was["h:"+c.Lease], " ")
	_, mid, _ := strings.Cut(is["h:"+c.Lease], " ")
	if _, owner, _ := strings.Cut(old, " "); mid != "600000 "+owner {
		t.Errorf("%q became %q", old, mid)
	}
	delete(was, "h:"+c.Lease)
	delete(is, "h:"+c.Lease)
	if !maps.Equal(was, is) {
		t.Errorf("it was %q\nand is %q", was, is)
	}
	if left := asks.PTTL(t.Context(), stored(run)).Val(); left < time.Hour-soon || left > time.Hour {
		t.Errorf("the key lasts for %v", left)
	}
}

// trips is a hook that counts the round trips of the client.
type trips struct{ n atomic.Int32 }

func (*trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.n.Add(1)
		return next(ctx, cmd)
	}
}

func (h *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.n.Add(1)
		return next(ctx, cmds)
	}
}

// TestExtend_UnknownScript counts the round trips of a large batch at a server that
// does not know the script. There are three: all calls by digest, the first call with
// the text, and the others by digest.
func TestExtend_UnknownScript(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := testclient.Redis(t, server.Addr)
	s, hook, batch := newStore(t, client), new(trips), make([]store.Claim, 200)
	for i := range batch {
		batch[i] = claimed()
		acquire(t, s, batch[i])
	}
	client.AddHook(hook)
	for _, want := range []int32{3, 1} {
		hook.n.Store(0)
		for i, x := range s.Extend(t.Context(), batch) {
			if x.Err != nil {
				t.Fatalf("answer %d: %v", i, x.Err)
			}
		}
		if got := hook.n.Load(); got != want {
			t.Errorf("got %d round trips, want %d", got, want)
		}
	}
}
