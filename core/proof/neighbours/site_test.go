package neighbours_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// limit is a generous time limit for short waits, on a busy machine.
const limit = time.Minute

// site has the servers that both sides use.
type site struct {
	servers []*testserver.Redis
	addrs   []string
	clients []redis.UniversalClient
}

func newSite(t *testing.T, servers int) *site {
	t.Helper()
	s := &site{}
	for range servers {
		server := testserver.StartRedis(t)
		s.servers, s.addrs = append(s.servers, server), append(s.addrs, server.Addr)
		s.clients = append(s.clients, testclient.Redis(t, server.Addr))
	}
	return s
}

// locks returns a Locker of the kit for plain keys with prefix.
func (s *site) locks(t *testing.T, prefix string) *core.Locker {
	t.Helper()
	var nodes []store.Store
	for _, c := range s.clients {
		node, err := redisstore.New(c, redisstore.WithPlainKeys(), redisstore.WithPrefix(prefix))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = node.Close() })
		nodes = append(nodes, node)
	}
	all := nodes[0]
	if len(nodes) > 1 {
		majority, err := redlock.New(nodes, redlock.WithQuarantine(long))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = majority.Close() })
		all = majority
	}
	l, err := core.New(all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return l
}

// values returns the value of key on each server. An absent key has an empty value.
func (s *site) values(t *testing.T, key string) (all []string) {
	t.Helper()
	for _, c := range s.clients {
		v, err := c.Get(t.Context(), key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

func (s *site) free(t *testing.T, key string) bool {
	t.Helper()
	return !slices.ContainsFunc(s.values(t, key), func(v string) bool { return v != "" })
}

func (s *site) awaitFree(t *testing.T, key string) {
	t.Helper()
	testserver.Eventually(t, limit, key+" is free", func() bool { return s.free(t, key) })
}

// remove deletes key on each server, as if the servers had lost their data.
func (s *site) remove(t *testing.T, key string) {
	t.Helper()
	for _, c := range s.clients {
		if err := c.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// extends waits until the time to live of key rises, or until the key has expired. It
// reports whether the time rose, which shows that the holder has extended the key.
func (s *site) extends(t *testing.T, key string) (yes bool) {
	t.Helper()
	var last time.Duration
	testserver.Eventually(t, limit, key+" is extended or expires", func() bool {
		left, err := s.clients[0].PTTL(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		yes = left > last && last > 0
		last = left
		return yes || left < 0
	})
	return yes
}
