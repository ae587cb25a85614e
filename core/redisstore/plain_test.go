package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestPlainKeys(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	asks := testclient.Redis(t, server.Addr)
	proxy := testserver.NewRedisProxy(t, server.Addr)
	s := newStore(t, testclient.Redis(t, proxy.Addr), redisstore.WithPlainKeys(), redisstore.WithPrefix("locks:"))
	name := func(c store.Claim) string { return "locks:" + c.Key }
	value := func(t *testing.T, c store.Claim) string {
		t.Helper()
		v, err := asks.Get(t.Context(), name(c)).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		return v
	}
	ttl := func(t *testing.T, c store.Claim, about time.Duration) {
		t.Helper()
		if left := asks.PTTL(t.Context(), name(c)).Val(); left > about || left < about-20*time.Second {
			t.Errorf("the key lives for %v, want about %v", left, about)
		}
	}
	theirs := func(t *testing.T, c store.Claim, ttl time.Duration) {
		t.Helper()
		if err := asks.Set(t.Context(), name(c), "theirs", ttl).Err(); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("keys with braces", func(t *testing.T) {
		for _, key := range []string{"{t1}:order:42", "order:{42}", "a}b{c"} {
			c := claimed()
			c.Key = key
			theirs(t, c, time.Minute)
			_, err := s.Acquire(t.Context(), c)
			wantIs(t, "acquire", err, store.ErrBusy)
			if err := asks.Del(t.Context(), name(c)).Err(); err != nil {
				t.Fatal(err)
			}
			l, err := core.New(s)
			if err != nil {
				t.Fatal(err)
			}
			lease, err := l.TryAcquire(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if value(t, c) == "" {
				t.Errorf("nothing is at %s", name(c))
			}
			if err := errors.Join(lease.Extend(t.Context(), time.Minute), lease.Release(t.Context()), l.Close(t.Context())); err != nil {
				t.Error(err)
			}
			if v := value(t, c); v != "" {
				t.Errorf("%q is left at %s", v, name(c))
			}
		}
	})
	t.Run("foreign lock is respected", func(t *testing.T) {
		c := claimed()
		theirs(t, c, time.Minute)
		_, err := s.Acquire(t.Context(), c)
		var busy *store.BusyError
		if !errors.As(err, &busy) || busy.RetryAfter <= 0 || busy.RetryAfter > time.Minute {
			t.Fatalf("acquire: got %v, %+v", err, busy)
		}
		wantIs(t, "extend", extend(s, c), store.ErrLost)
		wantIs(t, "release", s.Release(t.Context(), c), store.ErrLost)
		if v := value(t, c); v != "theirs" {
			t.Errorf("the value is %q", v)
		}
	})
	t.Run("foreign lock without TTL", func(t *testing.T) {
		c := claimed()
		theirs(t, c, 0)
		defer asks.Del(t.Context(), name(c))
		_, err := s.Acquire(t.Context(), c)
		var busy *store.BusyError
		if !errors.As(err, &busy) || busy.RetryAfter != 0 {
			t.Fatalf("acquire: got %v, %+v", err, busy)
		}
	})
	t.Run("another program respects our lock", func(t *testing.T) {
		c := claimed()
		acquire(t, s, c)
		ttl(t, c, time.Minute)
		if asks.SetNX(t.Context(), name(c), "theirs", time.Minute).Val() {
			t.Error("the other program got it")
		}
		release(t, s, c)
		if !asks.SetNX(t.Context(), name(c), "theirs", time.Minute).Val() {
			t.Error("the other program did not get it")
		}
	})
	t.Run("lost reply", func(t *testing.T) { // hazard 7
		for range trials {
			c := claimed()
			proxy.Inject(testserver.Match{Script: "acquire", Arg: c.Owner}, testserver.CloseReply)
			_, err := s.Acquire(t.Context(), c)
			if err == nil || errors.Is(err, store.ErrBusy) {
				t.Fatalf("acquire: got %v", err)
			}
			acquire(t, s, c)
			release(t, s, c)
			if v := value(t, c); v != "" {
				t.Errorf("the value is %q after the release", v)
			}
		}
	})
	t.Run("nothing shortens", func(t *testing.T) {
		c := claimed()
		acquire(t, s, c)
		c.TTL = time.Second
		acquire(t, s, c)
		if err := extend(s, c); err != nil {
			t.Error(err)
		}
		ttl(t, c, time.Minute)
		c.TTL = time.Hour
		if err := extend(s, c); err != nil {
			t.Error(err)
		}
		ttl(t, c, time.Hour)
	})
	t.Run("lock that lost its TTL", func(t *testing.T) {
		c := claimed()
		acquire(t, s, c)
		if !asks.Persist(t.Context(), name(c)).Val() {
			t.Fatal("not persisted")
		}
		if err := extend(s, c); err != nil {
			t.Error(err)
		}
		ttl(t, c, time.Minute)
	})
	t.Run("kept key without an owner", func(t *testing.T) {
		c := claimed()
		acquire(t, s, c)
		c.Keep = time.Hour
		release(t, s, c)
		ttl(t, c, time.Hour)
		v := value(t, c)
		if v == "" || v == c.Owner {
			t.Errorf("the value is %q", v)
		}
		c.Keep = time.Second
		wantIs(t, "release", s.Release(t.Context(), c), store.ErrLost)
		wantIs(t, "extend", extend(s, c), store.ErrLost)
		_, err := s.Acquire(t.Context(), c)
		wantIs(t, "acquire", err, store.ErrBusy)
		ttl(t, c, time.Hour)
	})
	t.Run("waiting claim is busy", func(t *testing.T) {
		c, w := claimed(), store.Claim{}
		acquire(t, s, c)
		w = claimOf(c.Key)
		w.Wait = true
		_, err := s.Acquire(t.Context(), w)
		wantIs(t, "acquire", err, store.ErrBusy)
		wantIs(t, "release", s.Release(t.Context(), w), store.ErrLost)
	})
	t.Run("SET or script", func(t *testing.T) {
		c := claimed()
		calls := func() (sets, scripts int) {
			return proxy.Count(testserver.Match{Command: "set", Arg: name(c)}), proxy.Count(testserver.Match{Command: "evalsha", Arg: name(c)})
		}
		want := func(when string, sets, scripts int) {
			t.Helper()
			if a, b := calls(); a != sets || b != scripts {
				t.Errorf("%s: %d SET and %d scripts, want %d and %d", when, a, b, sets, scripts)
			}
		}
		acquire(t, s, c)
		want("granted", 1, 0)
		other := claimOf(c.Key)
		for n := range 3 {
			_, err := s.Acquire(t.Context(), other)
			wantIs(t, "acquire", err, store.ErrBusy)
			want("refused", 2, 1+n)
		}
		release(t, s, c)
		want("released", 2, 4)
		acquire(t, s, other)
		want("granted at last", 2, 5)
		release(t, s, other)
		acquire(t, s, c)
		want("granted again", 3, 6)
		release(t, s, c)
	})
	t.Run("hash stays unchanged", func(t *testing.T) {
		c := claimed()
		if err := asks.HSet(t.Context(), name(c), "a", "b").Err(); err != nil {
			t.Fatal(err)
		}
		defer asks.Del(t.Context(), name(c))
		_, err := s.Acquire(t.Context(), c)
		wantIs(t, "acquire", err, store.ErrUnavailable)
		wantIs(t, "release", s.Release(t.Context(), c), store.ErrUnavailable)
		if asks.HGet(t.Context(), name(c), "a").Val() != "b" {
			t.Error("the hash has changed")
		}
	})
}

// refusals is a Store that records when its refused requests were sent.
type refusals struct {
	*redisstore.Store
	mu      sync.Mutex
	refused []time.Time
}

func (s *refusals) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	sent := time.Now()
	g, err := s.Store.Acquire(ctx, c)
	if errors.Is(err, store.ErrBusy) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refused = append(s.refused, sent)
	}
	return g, err
}

func (s *refusals) refusedAfter(t time.Time) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sent := range s.refused {
		if sent.After(t) {
			n++
		}
	}
	return n
}

// TestPlainKeys_WaiterOfKeptKey lets a key stay taken for a while after its release. A
// waiter gets the key by its first request after that time, so within one polling step.
func TestPlainKeys_WaiterOfKeptKey(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	s := newStore(t, testclient.Redis(t, server.Addr), redisstore.WithPlainKeys())
	waits := &refusals{Store: newStore(t, testclient.Redis(t, server.Addr), redisstore.WithPlainKeys())}
	l, err := core.New(waits)
	if err != nil {
		t.Fatal(err)
	}
	c := claimed()
	acquire(t, s, c)
	var entered time.Time
	var waiter sync.WaitGroup
	defer waiter.Wait()
	waiter.Go(func() {
		lease, err := l.Acquire(t.Context(), c.Key)
		entered = time.Now()
		if err != nil {
			t.Errorf("waiter: got %v, want a lease", err)
			return
		}
		if err := errors.Join(lease.Release(t.Context()), l.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
	testserver.Eventually(t, time.Minute, "the waiter has asked", func() bool { return waits.refusedAfter(time.Time{}) > 0 })
	c.Keep = 300 * time.Millisecond
	earliest := time.Now().Add(c.Keep - time.Millisecond)
	release(t, s, c)
	latest := time.Now().Add(c.Keep + time.Millisecond)
	waiter.Wait()
	if entered.Before(earliest) {
		t.Errorf("the waiter has entered %v before the end of the kept time", earliest.Sub(entered))
	}
	if n := waits.refusedAfter(latest); n > 0 {
		t.Errorf("got %d refused requests after the kept time, want none", n)
	}
}
