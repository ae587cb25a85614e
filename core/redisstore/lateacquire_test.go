package redisstore_test

import (
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestLateAcquire shows a limit of plain keys and of Redisson's keys. An acquire that
// arrives after the release of its lease holds the key, for at most its TTL. The usual
// keys refuse such an acquire.
func TestLateAcquire(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	asks := testclient.Redis(t, server.Addr)
	for name, opts := range map[string][]redisstore.Option{
		"usual":    nil,
		"plain":    {redisstore.WithPlainKeys()},
		"redisson": {redisstore.WithRedisson()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, testclient.Redis(t, server.Addr), append(opts, redisstore.WithPrefix(name))...)
			c := claimed()
			c.TTL = 5 * time.Second
			wantIs(t, "release", s.Release(t.Context(), c), store.ErrLost)
			if opts == nil {
				wantIs(t, "late acquire", second(s.Acquire(t.Context(), c)), store.ErrLost)
				acquire(t, s, claimOf(c.Key))
				return
			}
			acquire(t, s, c)
			wantIs(t, "acquire of another", second(s.Acquire(t.Context(), claimOf(c.Key))), store.ErrBusy)
			if left := asks.PTTL(t.Context(), name+c.Key).Val(); left <= 0 || left > c.TTL {
				t.Errorf("got a hold for %v, want at most %v", left, c.TTL)
			}
			testserver.Eventually(t, time.Minute, "the late hold has expired", func() bool {
				return asks.Exists(t.Context(), name+c.Key).Val() == 0
			})
			acquire(t, s, claimOf(c.Key))
		})
	}
}

// TestRedissonCounterLost shows a limit: tokens repeat if the counter of RFencedLock is
// lost, for example by its delete() or by a failover.
func TestRedissonCounterLost(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	s := newStore(t, testclient.Redis(t, server.Addr), redisstore.WithRedisson())
	c := claimed()
	c.MinToken = 1
	first := acquire(t, s, c)
	release(t, s, c)
	if n, err := testclient.Redis(t, server.Addr).Del(t.Context(), "redisson_lock_token:{"+c.Key+"}").Result(); n != 1 || err != nil {
		t.Fatalf("the counter: got %d, %v", n, err)
	}
	next := claimOf(c.Key)
	next.MinToken = 1
	if g := acquire(t, s, next); g.Token > first.Token {
		t.Errorf("got token %d after %d, want a repeated one", g.Token, first.Token)
	}
}
