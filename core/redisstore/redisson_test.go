package redisstore_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

var notRedisson = []storetest.Feature{
	storetest.Shared, storetest.Permits, storetest.Fair, storetest.Tombstones, storetest.Records, storetest.Carding, storetest.Places,
}

func TestStoreWithRedisson(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	conformance(t, server, func(t testing.TB) store.Store {
		return unfenced{newStore(t, testclient.Redis(t, server.Addr), redisstore.WithRedisson())}
	}, append(slices.Clone(notRedisson), storetest.Fencing)...)
}

// unfenced refuses claims that need a token. Most claims need none, and the Store then
// does not create the counter of tokens.
type unfenced struct{ *redisstore.Store }

func (u unfenced) CheckClaim(c store.Claim) error {
	if c.MinToken > 0 {
		return store.ErrUnsupported
	}
	return u.Store.CheckClaim(c)
}

func (u unfenced) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if c.MinToken > 0 {
		return store.Grant{}, store.ErrUnsupported
	}
	return u.Store.Acquire(ctx, c)
}

// fenced requires a token with each claim, as core.Fenced does.
type fenced struct{ *redisstore.Store }

func (f fenced) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if c.Weight == store.All && c.Limit == store.All {
		c.MinToken = max(c.MinToken, 1)
	}
	return f.Store.Acquire(ctx, c)
}

// TestStoreWithRedissonFenced runs the suite that TestRedissonOnCluster runs in a
// Cluster.
func TestStoreWithRedissonFenced(t *testing.T) {
	tally.ProofOrMatrix(t)
	t.Parallel()
	server := testserver.StartRedis(t)
	conformanceOf(t, func(t testing.TB) store.Store {
		return fenced{newStore(t, testclient.Redis(t, server.Addr), redisstore.WithRedisson())}
	}, notRedisson...)
}

// TestRedissonOnCluster checks the Store in a Cluster. For each form of name a release
// wakes a watch. An acquire with a token is refused if the counter would be in another
// slot.
func TestRedissonOnCluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a Cluster takes seconds to start")
	}
	cluster := testserver.StartCluster(t, false, testserver.NoFailover...)
	client := testclient.Cluster(t, cluster)
	conformanceOf(t, func(t testing.TB) store.Store {
		return onSlots{fenced{newStore(t, client, redisstore.WithRedisson())}}
	}, notRedisson...)
	s := newStore(t, client, redisstore.WithRedisson())
	for key, want := range map[string]error{"{tenant}:1": nil, "order:1": nil, "a}b{c": store.ErrUnsupported, "a}b": store.ErrUnsupported, "{}a": store.ErrUnsupported} {
		c := claimOf(key)
		c.MinToken = 1
		_, err := s.Acquire(t.Context(), c)
		wantIs(t, "acquire "+key, err, want)
		woken, err := s.Watch(t.Context(), claimOf(key))
		if err != nil {
			t.Fatal(err)
		}
		c.MinToken = 0
		acquire(t, s, c)
		release(t, s, c)
		<-woken
	}
}

// onSlots requires a token with each claim, except for a key with braces, whose counter
// can be in another slot.
type onSlots struct{ fenced }

func (o onSlots) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if strings.ContainsAny(c.Key, "{}") {
		return o.Store.Acquire(ctx, c)
	}
	return o.fenced.Acquire(ctx, c)
}

func TestRedissonKeys(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, fit...)
	asks := testclient.Redis(t, server.Addr)
	s := newStore(t, testclient.Redis(t, server.Addr), redisstore.WithRedisson())
	const thread = "285475da-9152-4c83-822a-67ee2f116a79:52"
	theirs := func(t *testing.T, key string, ttl time.Duration) {
		t.Helper()
		if err := errors.Join(asks.HSet(t.Context(), key, thread, 1).Err(), asks.PExpire(t.Context(), key, ttl).Err()); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("names are used verbatim", func(t *testing.T) {
		for _, key := range []string{core.Key("order", "42"), core.Key("order", "a:b{c}"), "{tenant}:order"} {
			l, err := core.New(s)
			if err != nil {
				t.Fatal(err)
			}
			lease, err := l.TryAcquire(t.Context(), key, core.Fenced())
			if err != nil {
				t.Fatal(err)
			}
			if n := asks.HLen(t.Context(), key).Val(); n != 1 {
				t.Errorf("%d fields are at %s", n, key)
			}
			counter := "redisson_lock_token:{" + key + "}"
			if strings.Contains(key, "{") {
				counter = "redisson_lock_token:" + key
			}
			last := strconv.FormatUint(lease.Token()+store.TokenStep-1, 10)
			if got := asks.Get(t.Context(), counter).Val(); got != last {
				t.Errorf("%s is %q, want %s", counter, got, last)
			}
			if err := errors.Join(lease.Release(t.Context()), l.Close(t.Context())); err != nil {
				t.Error(err)
			}
			if n := asks.Exists(t.Context(), key).Val(); n != 0 {
				t.Errorf("%s is left", key)
			}
		}
	})
	t.Run("Redisson lock", func(t *testing.T) {
		c := claimed()
		theirs(t, c.Key, time.Minute)
		_, err := s.Acquire(t.Context(), c)
		var busy *store.BusyError
		if !errors.As(err, &busy) || busy.RetryAfter <= 0 || busy.RetryAfter > time.Minute {
			t.Fatalf("acquire: got %v", err)
		}
		wantIs(t, "extend", extend(s, c), store.ErrLost)
		wantIs(t, "release", s.Release(t.Context(), c), store.ErrLost)
		state, err := s.Look(t.Context(), c.Key)
		if err != nil || len(state.Holds) != 1 || state.Holds[0].ID != store.HoldID(thread) || state.Holds[0].Process != "" {
			t.Fatalf("look: got %+v, %v", state, err)
		}
		if err := s.Revoke(t.Context(), c.Key, state.Holds[0].ID, time.Millisecond); err != nil {
			t.Fatal(err)
		}
		wantIs(t, "acquire of a key that is kept", second(s.Acquire(t.Context(), c)), store.ErrBusy)
		if left := asks.PTTL(t.Context(), c.Key).Val(); left < 50*time.Second {
			t.Errorf("the key is kept for %v, want the rest of its hold", left)
		}
	})
	t.Run("lock forced open by Redisson", func(t *testing.T) {
		c := claimed()
		acquire(t, s, c)
		if err := asks.Del(t.Context(), c.Key).Err(); err != nil {
			t.Fatal(err)
		}
		theirs(t, c.Key, time.Minute)
		wantIs(t, "extend", extend(s, c), store.ErrLost)
		wantIs(t, "release", s.Release(t.Context(), c), store.ErrLost)
		if v := asks.HGet(t.Context(), c.Key, thread).Val(); v != "1" {
			t.Errorf("their hold is %q", v)
		}
	})
	t.Run("re-entry beside a Redisson reader", func(t *testing.T) {
		c := claimed()
		acquire(t, s, c)
		theirs(t, c.Key, time.Minute)
		inner := nested(c)
		acquire(t, s, inner)
		wantIs(t, "acquire of another", second(s.Acquire(t.Context(), claimOf(c.Key))), store.ErrBusy)
		release(t, s, c)
		release(t, s, inner)
		if v := asks.HGet(t.Context(), c.Key, thread).Val(); v != "1" {
			t.Errorf("their hold is %q", v)
		}
	})
	t.Run("hashes without a lock", func(t *testing.T) {
		c := claimed()
		if err := asks.HSet(t.Context(), c.Key, "name", "ann").Err(); err != nil {
			t.Fatal(err)
		}
		wantIs(t, "acquire", second(s.Acquire(t.Context(), c)), store.ErrBusy)
		wantIs(t, "look", second(s.Look(t.Context(), c.Key)), store.ErrUnavailable)
		if states, _, err := s.List(t.Context(), "", 1000); err != nil || slices.ContainsFunc(states, func(v store.State) bool { return v.Key == c.Key }) {
			t.Errorf("list: got %v, %v", states, err)
		}
	})
	t.Run("a counter at its end", func(t *testing.T) {
		c := claimed()
		c.MinToken = 1
		if err := asks.Set(t.Context(), "redisson_lock_token:{"+c.Key+"}", 1<<53-10, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if g, err := s.Acquire(t.Context(), c); err == nil {
			t.Errorf("got token %d", g.Token)
		}
		if n := asks.Exists(t.Context(), c.Key).Val(); n != 0 {
			t.Error("the key is taken")
		}
	})
	t.Run("check leaves nothing", func(t *testing.T) {
		if err := s.Check(t.Context()); err != nil {
			t.Error(err)
		}
		for _, name := range asks.Keys(t.Context(), "*check:*").Val() {
			if left := asks.PTTL(t.Context(), name).Val(); left < 0 {
				t.Errorf("%s has no end", name)
			}
		}
	})
	t.Run("both options", func(t *testing.T) {
		_, err := redisstore.New(asks, redisstore.WithRedisson(), redisstore.WithPlainKeys())
		wantIs(t, "new", err, store.ErrInvalid)
	})
}

func second[T any](_ T, err error) error { return err }

// TestRedissonChannels shows that a watch receives only the messages of its lock's
// channel. The Store unsubscribes from a channel without a watch.
func TestRedissonChannels(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	asks := testclient.Redis(t, server.Addr)
	s := newStore(t, testclient.Redis(t, server.Addr), redisstore.WithRedisson())
	c, other := claimed(), claimed()
	watch := func(c store.Claim) (<-chan struct{}, context.CancelFunc) {
		t.Helper()
		ctx, leave := context.WithCancel(t.Context())
		ch, err := s.Watch(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		return ch, leave
	}
	name := func(c store.Claim) string { return "redisson_lock__channel:{" + c.Key + "}" }
	listeners := func(c store.Claim) int64 { return asks.PubSubNumSub(t.Context(), name(c)).Val()[name(c)] }
	first, leave := watch(c)
	second, leaveSecond := watch(c)
	others, leaveOthers := watch(other)
	if listeners(c) != 1 || listeners(other) != 1 {
		t.Errorf("%d and %d listen, want one connection", listeners(c), listeners(other))
	}
	if err := asks.Publish(t.Context(), name(c), "0").Err(); err != nil {
		t.Fatal(err)
	}
	<-first
	<-second
	select {
	case <-others:
		t.Error("a message on another channel woke a watch")
	default:
	}
	leave()
	leaveSecond()
	for listeners(c) != 0 {
		time.Sleep(50 * time.Millisecond)
	}
	if listeners(other) != 1 {
		t.Error("a channel was left while it was watched")
	}
	third, leave := watch(c) // subscribes again
	defer leave()
	if err := asks.Publish(t.Context(), name(c), "0").Err(); err != nil {
		t.Fatal(err)
	}
	<-third
	leaveOthers()
	server.Kill()
	if _, ok := <-third; ok {
		t.Error("the watch outlives its connection")
	}
}

// TestRedissonOutOfMemory shows that a server that is out of memory refuses new locks and
// loses no hold.
func TestRedissonOutOfMemory(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	s := newStore(t, testclient.Redis(t, server.Addr), redisstore.WithRedisson())
	c, keeps := claimed(), claimed()
	acquire(t, s, c)
	acquire(t, s, keeps)
	server.Do("CONFIG", "SET", "maxmemory", "1")
	wantIs(t, "acquire", second(s.Acquire(t.Context(), claimed())), store.ErrUnavailable)
	for range 2 {
		if err := extend(s, c); err != nil {
			t.Errorf("extend: %v", err)
		}
	}
	keeps.Keep = time.Minute
	release(t, s, keeps)
	wantIs(t, "acquire of a key that is kept", second(s.Acquire(t.Context(), claimOf(keeps.Key))), store.ErrBusy)
	release(t, s, c)
}

// TestRedissonRights takes one of the documented rights after the other from the user.
// No acquire leaves a key without an expiry, and a failed acquire leaves no key. A
// failed release leaves the hold. A successful release deletes the key, or keeps it
// taken.
func TestRedissonRights(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	asks := testclient.Redis(t, server.Addr)
	_, further := documentedRights(t)
	for n, left := range further["redisson"] {
		if !strings.HasPrefix(left, "+") && !strings.HasPrefix(left, "&") || left == "+eval" || left == "+evalsha" {
			continue
		}
		t.Run(left, func(t *testing.T) {
			others := slices.Delete(slices.Clone(further["redisson"]), n, n+1)
			as := login(t, server, "user"+strconv.Itoa(n), append(others, "~test:*")...)
			s := newStore(t, testclient.Redis(t, server.Addr, as), redisstore.WithRedisson())
			for _, keep := range []time.Duration{0, time.Hour} {
				c := claimed()
				c.MinToken, c.Keep = 1, keep
				_, err := s.Acquire(t.Context(), c)
				if err != nil {
					wantIs(t, "acquire", err, store.ErrUnavailable)
				}
				if left := asks.PTTL(t.Context(), c.Key).Val(); left == -1 || err != nil && left > 0 {
					t.Errorf("acquire: got %v, and the key lasts for %v", err, left)
				}
				if err != nil {
					return
				}
				before := asks.HGetAll(t.Context(), c.Key).Val()
				err = s.Release(t.Context(), c)
				after, left := asks.HGetAll(t.Context(), c.Key).Val(), asks.PTTL(t.Context(), c.Key).Val()
				switch {
				case err != nil:
					wantIs(t, "release", err, store.ErrUnavailable)
					if !maps.Equal(before, after) || left > c.TTL {
						t.Errorf("release: got %v, and the key is %v for %v, was %v", err, after, left, before)
					}
				case keep == 0 && len(after) > 0, keep > 0 && left < keep/2:
					t.Errorf("release: the key is %v for %v, want it kept for %v", after, left, keep)
				}
			}
		})
	}
}

// TestRedissonSooner shows that a release wakes the waiters if the key will be free
// sooner than before.
func TestRedissonSooner(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	asks := testclient.Redis(t, server.Addr)
	s := newStore(t, testclient.Redis(t, server.Addr), redisstore.WithRedisson())
	for name, sooner := range map[string]func(c store.Claim){
		"kept for less": func(c store.Claim) {
			c.Keep = time.Second
			release(t, s, c)
		},
		"a short hold stays": func(c store.Claim) {
			inner := nested(c)
			inner.TTL = time.Second
			acquire(t, s, inner)
			release(t, s, c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := claimed()
			acquire(t, s, c)
			woken, err := s.Watch(t.Context(), claimOf(c.Key))
			if err != nil {
				t.Fatal(err)
			}
			sooner(c)
			<-woken
			if left := asks.PTTL(t.Context(), c.Key).Val(); left > time.Second {
				t.Errorf("the key lasts for %v", left)
			}
		})
	}
	t.Run("kept hold refuses its owner", func(t *testing.T) {
		c := claimed()
		inner, keeps := nested(c), c
		acquire(t, s, c)
		acquire(t, s, inner)
		keeps.Keep = time.Minute
		release(t, s, keeps)
		wantIs(t, "acquire", second(s.Acquire(t.Context(), nested(c))), store.ErrBusy)
		acquire(t, s, inner) // once more
	})
	t.Run("revoked writer", func(t *testing.T) {
		c := claimed()
		const field = "285475da-9152-4c83-822a-67ee2f116a79:52:write"
		if err := errors.Join(asks.HSet(t.Context(), c.Key, "mode", "write", field, 1).Err(), asks.PExpire(t.Context(), c.Key, time.Hour).Err()); err != nil {
			t.Fatal(err)
		}
		if err := s.Revoke(t.Context(), c.Key, store.HoldID(field), 0); err != nil {
			t.Fatal(err)
		}
		acquire(t, s, c)
	})
}
