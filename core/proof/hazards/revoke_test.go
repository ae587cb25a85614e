package hazards_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// revoked is a store whose holds are revoked. A process with the given plan holds the
// key. The operator and the successor use the given store.
type revoked struct {
	plan  plan
	store core.Store
}

func revocable(t *testing.T) map[string]func(t *testing.T) revoked {
	server := testserver.StartRedis(t)
	database := testserver.StartPostgres(t)
	pool := testclient.Postgres(t, database.URL())
	if err := pgstore.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	onRedis := func(p plan, opts ...redisstore.Option) func(t *testing.T) revoked {
		return func(t *testing.T) revoked {
			s, err := redisstore.New(testclient.Redis(t, server.Addr), append(opts, redisstore.WithPrefix(p.Prefix))...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return revoked{p, s}
		}
	}
	several := func(kind string, addrs ...string) func(t *testing.T) revoked {
		p := plan{Kind: kind, Addrs: addrs, Prefix: "revoked"}
		return func(t *testing.T) revoked {
			s, end, err := p.openSeveral()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(end)
			return revoked{p, s}
		}
	}
	nodes := make([]string, 3)
	for i := range nodes {
		nodes[i] = testserver.StartRedis(t).Addr
	}
	const settings = "?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	return map[string]func(t *testing.T) revoked{
		"MariaDB": several("mysql", testserver.StartMariaDB(t).NewDatabase(t).DSN()),
		// SQLite has one writer at a time, so each trial has a file.
		"SQLite": func(t *testing.T) revoked {
			return several("sqlite", "file:"+filepath.Join(t.TempDir(), "locks.db")+settings)(t)
		},
		"Cluster":    several("cluster", testserver.StartCluster(t, false).Addrs()...),
		"Sentinel":   several("sentinel", testserver.StartSentinel(t).SentinelAddrs()...),
		"Redlock":    several("redlock", nodes...),
		"ZooKeeper":  several("zookeeper", testserver.StartZooKeeper(t).Addr),
		"Redis":      onRedis(plan{Addr: server.Addr, Prefix: ""}),
		"plain keys": onRedis(plan{Addr: server.Addr, Prefix: "plain:", Plain: true}, redisstore.WithPlainKeys()),
		"Redisson":   onRedis(plan{Addr: server.Addr, Prefix: "redisson:", Redisson: true}, redisstore.WithRedisson()),
		"PostgreSQL": func(t *testing.T) revoked {
			s, err := pgstore.New(pool)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return revoked{plan{Addr: database.URL()}, s}
		},
	}
}

// revoke revokes a hold of the key. If the hold is gone before the revoke, revoke tries
// the next hold after a short pause. Without the pause its calls would slow the holder.
// A call without an answer is repeated. revoke returns a time before the hold was
// revoked at the store.
func (r revoked) revoke(t *testing.T, key string, keep time.Duration) (at int64) {
	t.Helper()
	in, sent := r.store.(store.Inspector), ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(rand.N(5 * time.Millisecond)) {
		state, err := in.Look(t.Context(), key)
		id := ""
		switch {
		case errors.Is(err, core.ErrUnavailable):
			continue
		case err != nil:
			t.Fatal(err)
		case len(state.Holds) > 0:
			id = state.Holds[0].ID
		}
		if sent != "" && id != sent {
			return at // the revoke without an answer was carried out
		}
		if id == "" {
			continue
		}
		if sent == "" {
			at = mono()
		}
		switch err := in.Revoke(t.Context(), key, id, keep); {
		case err == nil, sent != "" && errors.Is(err, core.ErrLost):
			return at
		case errors.Is(err, core.ErrUnavailable):
			sent = id
		case !errors.Is(err, core.ErrLost):
			t.Fatal(err)
		}
	}
	t.Fatalf("no hold was revoked within %v", patience)
	return 0
}

// succeed acquires the key after the revoke, and relies on the key for a moment. The
// lease's TTL is long, so that each call may take two seconds on a busy machine.
func (r revoked) succeed(t *testing.T, key string) span {
	t.Helper()
	locker, err := core.New(r.store)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lease, err := locker.Acquire(ctx, key, core.TTL(12*time.Second))
	if err != nil {
		t.Fatalf("the successor: %v", err)
	}
	s := span{Key: key, Who: "successor", From: mono(), Token: lease.Token()}
	s.Until = guard(lease, 20*time.Millisecond, func() {})
	release(t, lease)
	return s
}

// TestRevokedHolds checks that the holder is notified of a revoke before another process
// is granted the key (hazard 66). If the revoke frees the key at once, the test expects
// two holders in at least one trial (limit).
func TestRevokedHolds(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	const ttl = 6 * time.Second
	for name, open := range revocable(t) {
		t.Run(name+" notified before next grant", func(t *testing.T) {
			t.Parallel()
			trials(t, count(100), func(t *testing.T, n int) {
				r, key := open(t), fmt.Sprintf("revoked:%d", n)
				c := newChild(t, r.plan)
				loop := c.send(order{Op: "loop", Key: key, TTL: ttl, N: 1, Hold: time.Hour, Pause: time.Hour})
				c.await(loop, "holding")
				time.Sleep(rand.N(ttl / 2)) // at any time between two extensions
				r.revoke(t, key, time.Millisecond)
				next := r.succeed(t, key)
				first := c.await(loop, "hold")
				if first.Count["kept"] != 0 {
					t.Error("the release of the revoked lease says that it was held")
				}
				if first.Span.Until >= next.From {
					t.Errorf("the revoked lease was trusted for %v with the next one", ms(next.From, first.Span.Until))
				}
				if next.Token != 0 && next.Token <= first.Span.Token {
					t.Errorf("token %d comes after %d", next.Token, first.Span.Token)
				}
			})
		})
		t.Run(name+" notified after passing on", func(t *testing.T) {
			t.Parallel()
			lost := newBites(t, "a lease was notified of the revoke", count(100)/2)
			// A hold is passed on only within 10 ms of its grant. Parallel trials would
			// slow the operator's calls so much that each hold would be gone before its
			// revoke.
			oneByOne(t, count(100), func(t *testing.T, n int) {
				r, key := open(t), fmt.Sprintf("passed on:%d", n)
				c := newChild(t, r.plan)
				loop := c.send(order{Op: "loop", Key: key, TTL: ttl, N: 4, Hold: 2 * time.Millisecond})
				c.await(loop, "hold")
				time.Sleep(rand.N(100 * time.Millisecond))
				at := r.revoke(t, key, time.Millisecond)
				next := r.succeed(t, key)
				c.send(order{Op: "stop"})
				c.await(loop, "looped")
				// No lease is notified if the hold was between two leases. The same is
				// true if the hold had expired before the answer to the lease's release
				// arrived.
				spans, notified := []span{next}, false
				for _, h := range c.all("hold") {
					spans = append(spans, h.Span)
					notified = notified || h.Count["kept"] == 0 && h.Span.From < next.From
				}
				if notified {
					lost.add()
				}
				slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.From, b.From) })
				for i, s := range spans[1:] {
					if before := spans[i]; before.Until >= s.From {
						t.Errorf("%s and %s relied on the key together, for %v, %v after the revoke", before.Who, s.Who, ms(s.From, before.Until), ms(at, s.From))
					}
				}
			})
		})
		t.Run(name+" limit freed at once", func(t *testing.T) {
			t.Parallel()
			overlaps := newBites(t, "two holders after a release-now", 1)
			trials(t, 10, func(t *testing.T, n int) {
				r, key := open(t), fmt.Sprintf("now:%d", n)
				c := newChild(t, r.plan)
				loop := c.send(order{Op: "loop", Key: key, TTL: ttl, N: 1, Hold: time.Hour, Pause: time.Hour})
				c.await(loop, "holding")
				r.revoke(t, key, 0)
				next := r.succeed(t, key)
				if first := c.await(loop, "hold"); first.Span.Until > next.From {
					overlaps.add()
				}
			})
		})
	}
}
