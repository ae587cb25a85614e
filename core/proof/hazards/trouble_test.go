package hazards_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestTroubledServer checks servers that evict keys, are out of memory, lose their
// script cache or restart empty.
func TestTroubledServer(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	for _, policy := range []string{"allkeys-lru", "allkeys-random", "volatile-lru", "volatile-ttl"} {
		// hazard 26
		t.Run("evicted by "+policy, func(t *testing.T) {
			t.Parallel()
			evicted(t, policy)
		})
	}
	// hazard 27. The server extends and releases, and refuses to grant.
	t.Run("out of memory", outOfMemory)
	// hazard 29. No caller notices.
	t.Run("script cache emptied all the time", emptiedCache)
	// hazard 34
	t.Run("tokens after empty restarts", emptyRestarts)
}

// fill writes keys with a TTL until the test ends, so that the server evicts other keys.
func fill(t *testing.T, server *testserver.Redis, ttl time.Duration) {
	t.Helper()
	client := testclient.Redis(t, server.Addr)
	value := strings.Repeat("x", 4000)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-quit:
				return
			default:
			}
			_, err := client.Pipelined(context.Background(), func(p redis.Pipeliner) error {
				for j := range 20 {
					p.Set(context.Background(), fmt.Sprintf("fill:%d:%d", i, j), value, ttl)
				}
				return nil
			})
			if err != nil {
				t.Errorf("fill: %v", err)
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(quit)
		<-done
	})
}

func evicted(t *testing.T, policy string) {
	const ttl, keys = 12 * time.Second, 10
	server := testserver.StartRedis(t, "--maxmemory", "4mb", "--maxmemory-policy", policy, "--maxmemory-samples", "10")
	l := newLocker(t, server.Addr)
	asks := inspect(t, server)
	leases := make([]*core.Lease, keys)
	for i := range leases {
		leases[i] = acquire(t, l, fmt.Sprintf("evicted:%d", i), core.TTL(ttl))
	}
	fill(t, server, time.Hour)
	var wg sync.WaitGroup
	for i, lease := range leases {
		wg.Go(func() {
			// EXISTS does not mark the key as recently used. A request after the loss
			// may write the key again.
			testserver.Eventually(t, patience, "the key is evicted", func() bool {
				n, err := asks.Exists(context.Background(), stored(lease.Key())).Result()
				return err == nil && n == 0 || lease.Context().Err() != nil
			})
			gone := mono()
			end := ended(t, lease)
			wantLost(t, lease)
			testserver.Eventually(t, patience, "nothing is held", func() bool { return asks.holds(lease.Key()) == 0 })
			// Without an extension that reports the loss, the lease would last for more
			// than 11 s.
			if took := ms(gone, end); took > ttl*2/3 {
				t.Errorf("the holder of key %d learned of its loss after %v", i, took)
			}
			wantErr(t, "release of a lost lease", lease.Release(context.Background()), core.ErrLost)
		})
	}
	wg.Wait()
}

func outOfMemory(t *testing.T) {
	t.Parallel()
	const ttl = 4 * time.Second
	server := testserver.StartRedis(t, "--maxmemory-policy", "noeviction")
	l := newLocker(t, server.Addr)
	asks := inspect(t, server)
	n := count(20)
	outer, inner := make([]*core.Lease, n), make([]*core.Lease, n)
	for i := range n {
		outer[i] = acquire(t, l, fmt.Sprintf("full:%d", i), core.TTL(ttl))
		inner[i] = acquireUnder(t, outer[i].Context(), l, outer[i].Key(), core.TTL(ttl))
	}
	// The server needs more memory than this for itself.
	server.Do("CONFIG", "SET", "maxmemory", "100kb")
	refuses := func(ctx context.Context, key string) {
		t.Helper()
		_, err := l.Acquire(ctx, key, core.TTL(ttl))
		wantErr(t, "acquire", err, core.ErrUnavailable)
		if err != nil && !strings.Contains(err.Error(), "OOM") {
			t.Errorf("acquire: %v, want the server's reason", err)
		}
	}
	refuses(t.Context(), "full:new")
	refuses(outer[0].Context(), outer[0].Key())
	time.Sleep(ttl * 3 / 2)
	for i := range n {
		key := outer[i].Key()
		wantHeld(t, outer[i])
		if err := outer[i].Extend(t.Context(), 2*ttl); err != nil {
			t.Errorf("extend: %v", err)
		}
		release(t, inner[i])
		if holds := asks.holds(key); holds != 1 {
			t.Errorf("%d holds after one release of two", holds)
		}
		release(t, outer[i])
		if holds := asks.holds(key); holds != 0 {
			t.Errorf("%d holds after two releases of two", holds)
		}
	}
	refuses(t.Context(), "full:new")
}

func emptiedCache(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	l := newLocker(t, server.Addr)
	asks := inspect(t, server)
	const ttl = 12 * time.Second
	long := acquire(t, l, "cache:long", core.TTL(ttl))
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(count(50))*200*time.Millisecond+ttl)
	defer cancel()
	var wg sync.WaitGroup
	stall := time.Duration(0) // the longest time between two flushes
	wg.Go(func() {
		for last := time.Now(); ctx.Err() == nil; {
			if err := asks.ScriptFlush(context.Background()).Err(); err != nil {
				t.Log(err)
			}
			time.Sleep(10 * time.Millisecond)
			now := time.Now()
			stall, last = max(stall, now.Sub(last)), now
		}
	})
	var cycles, failed atomic.Int64
	for i := range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := cycle(l, fmt.Sprintf("cache:%d", i%4)); err != nil {
					if t.Log(err); strings.Contains(err.Error(), "NOSCRIPT") {
						t.Errorf("got %v", err)
					}
					failed.Add(1)
					time.Sleep(100 * time.Millisecond)
				}
				cycles.Add(1)
			}
		})
	}
	wg.Wait()
	// The time limit of a call is about a second, and a call can begin during a stall.
	if n := failed.Load(); n > 0 && stall < time.Second/2 {
		t.Errorf("%d of %d cycles failed", n, cycles.Load())
	}
	wantHeld(t, long)
	release(t, long)
	unknown := 0
	for line := range strings.Lines(asks.Info(context.Background(), "errorstats").Val()) {
		_, _ = fmt.Sscanf(line, "errorstat_NOSCRIPT:count=%d", &unknown)
	}
	t.Logf("%d cycles, a script was unknown %d times, the longest stall took %v", cycles.Load(), unknown, stall)
	if unknown < 20 {
		t.Errorf("test setup: a script was unknown %d times", unknown)
	}
}

func cycle(l *core.Locker, key string) error {
	ctx := context.Background()
	lease, err := l.Acquire(ctx, key, core.Wait(patience))
	if err != nil {
		return err
	}
	inner, err := l.Acquire(lease.Context(), key)
	if err == nil {
		err = inner.Release(ctx)
	}
	return errors.Join(err, lease.Extend(ctx, time.Minute), lease.Release(ctx))
}

func emptyRestarts(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	l := newLocker(t, server.Addr)
	last := uint64(0)
	for i := range count(50) {
		for range 3 {
			lease := acquire(t, l, "counted", core.Wait(patience))
			if lease.Token() <= last {
				t.Errorf("token %d after %d", lease.Token(), last)
			}
			last = lease.Token()
			release(t, lease)
		}
		var held *core.Lease
		if i%2 == 0 {
			held = acquire(t, l, "counted")
			last = held.Token()
		}
		server.RestartEmpty()
		if held != nil {
			_ = held.Release(context.Background())
		}
	}
}
