package hazards_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestExtensions_End checks that long holds are extended, and that no lease is extended
// after its release (hazard 45).
func TestExtensions_End(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	t.Run("extend only held locks", func(t *testing.T) {
		t.Parallel()
		const ttl, lanes = 5 * time.Second, 100
		cycles := count(10_000) / lanes
		r := newSite(t).rig(t, "", 1, func(o *redis.Options) {
			o.PoolSize = 4 * lanes // each dropped reply occupies a connection for a while
		})
		late := lateness(t)
		stop := r.disturb()
		var mu sync.Mutex
		// long counts the leases held beyond a TTL, and kept those of them that were not
		// lost.
		long, kept := 0, 0
		var wg sync.WaitGroup
		for lane := range lanes {
			wg.Go(func() {
				for n := range cycles {
					key := fmt.Sprintf("ending:%d:%d", lane, n)
					hold := rand.N(ttl / 3)
					if n == cycles-1 {
						hold = 2 * ttl
					}
					lease, err := r.locker.Acquire(context.Background(), key, core.TTL(ttl))
					for errors.Is(err, core.ErrUnavailable) && t.Context().Err() == nil {
						// A cut connection makes the acquire unavailable.
						lease, err = r.locker.Acquire(context.Background(), key, core.TTL(ttl))
					}
					if err != nil {
						t.Errorf("acquire: %v", err)
						return
					}
					time.Sleep(hold)
					err = lease.Release(context.Background())
					if hold < ttl {
						continue
					}
					mu.Lock()
					long++
					if err == nil {
						kept++
						if len(r.tap.calls("extend", key)) == 0 {
							t.Errorf("%s was held for %v, but never extended", key, hold)
						}
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if disturbed := stop(); disturbed < 8 {
			t.Errorf("test setup: %d calls were disturbed", disturbed)
		}
		// Extensions that are due together share a call, and fail together. So most of
		// the long holds may be lost.
		if kept < lanes/20 {
			t.Errorf("test setup: %d of %d long holds were not lost", kept, long)
		}
		time.Sleep(ttl / 2) // long enough to observe a watchdog that keeps running
		r.neverAfterRelease(700*time.Millisecond + late())
	})
}

// disturb makes some extensions and releases fail, in four ways, until the returned
// function is called.
func (r *rig) disturb() (stop func() int) {
	actions := []testserver.Action{testserver.CloseReply, testserver.DropReply, testserver.CloseRequest, testserver.DropRequest}
	quit, done := make(chan struct{}), make(chan struct{})
	disturbed := 0
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			script := "extend"
			if i%3 == 0 {
				script = "release"
			}
			fault := r.proxy.Inject(testserver.Match{Script: script}, actions[i%len(actions)])
			select {
			case <-quit:
				r.proxy.Remove(fault)
				return
			case <-fault.Fired():
				disturbed++
			}
			time.Sleep(100*time.Millisecond + rand.N(200*time.Millisecond))
		}
	}()
	return func() int {
		close(quit)
		<-done
		return disturbed
	}
}

// neverAfterRelease checks the calls that the server received, and fails the test if a
// lease is extended after its release. Extensions that arrive within way after the
// release are ignored, because they may have been in flight.
func (r *rig) neverAfterRelease(way time.Duration) {
	r.t.Helper()
	released := make(map[string]int64)
	extended := 0
	for _, c := range r.tap.allCalls() {
		switch name, key, lease := c.script(); name {
		case "release":
			if released[lease] == 0 {
				released[lease] = c.At
			}
		case "extend":
			extended++
			if at := released[lease]; at > 0 && c.At > at+int64(way) {
				r.t.Errorf("%s is extended %v after its release", key, ms(at, c.At))
			}
		}
	}
	if extended == 0 || len(released) == 0 {
		r.t.Error("test setup: nothing was extended or released")
	}
}

// TestRelease_DoneContext checks that a release frees the key although the context is
// done (hazard 47).
func TestRelease_DoneContext(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	server := testserver.StartRedis(t)
	l := newLocker(t, server.Addr)
	gone := func(t *testing.T, asks inspector, key string, since int64) {
		t.Helper()
		if asks.holds(key) != 0 {
			t.Error("the key is still held after the release")
		}
		if took := ms(since, mono()); took > slack {
			t.Errorf("the release took %v", took)
		}
	}
	t.Run("release on a canceled context", func(t *testing.T) {
		t.Parallel()
		asks := inspect(t, server)
		for i := range count(50) {
			key := fmt.Sprintf("cancelled:%d", i)
			ctx, cancel := context.WithCancel(t.Context())
			lease, err := l.Acquire(ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			start := mono()
			if err := lease.Release(ctx); err != nil {
				t.Errorf("release: %v", err)
			}
			gone(t, asks, key, start)
		}
	})
	// The key is held and extended until the handler returns. It is extended twice after
	// the context is done.
	t.Run("handler outlives its request", func(t *testing.T) {
		t.Parallel()
		const key, ttl = "request", 6 * time.Second
		asks := inspect(t, server)
		ctx, cancel := context.WithCancel(t.Context())
		var start int64
		err := l.Do(ctx, key, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			hold := asks.hold(key)
			for range 2 {
				text := asks.fields(key)[hold]
				testserver.Eventually(t, patience, "an extension", func() bool { return asks.fields(key)[hold] != text })
			}
			if asks.holds(key) != 1 || asks.expiry(key, hold) < mono() {
				t.Error("the key is not held while the handler runs")
			}
			start = mono()
			return context.Cause(ctx)
		}, core.TTL(ttl))
		wantErr(t, "do", err, context.Canceled)
		if errors.Is(err, core.ErrLost) {
			t.Errorf("do: %v, want nothing of a loss", err)
		}
		gone(t, asks, key, start)
	})
}

// TestMisuse checks that misuse of a lease changes no other hold (hazard 50).
func TestMisuse(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	server := testserver.StartRedis(t)
	l, others := newLocker(t, server.Addr), newLocker(t, server.Addr)
	asks := inspect(t, server)
	// A second release returns the result of the first, and does not change the next
	// hold.
	t.Run("release again", func(t *testing.T) {
		t.Parallel()
		lease := acquire(t, l, "twice")
		release(t, lease)
		next := acquire(t, others, "twice")
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() { release(t, lease) })
		}
		wg.Wait()
		wantErr(t, "extend after release", lease.Extend(t.Context(), time.Minute), core.ErrLost)
		if asks.holds("twice") != 1 {
			t.Error("the next holder's lock is gone")
		}
		wantBusy(t, l, "twice")
		release(t, next)
	})
	// A caller with a wrong owner does not join the hold. A caller that has joined does
	// not free the key by its release.
	t.Run("unknown owner", func(t *testing.T) {
		t.Parallel()
		lease := acquire(t, l, "foreign")
		_, err := others.TryAcquire(core.ContextWithOwner(t.Context(), "somebody"), "foreign")
		wantErr(t, "acquire under a wrong owner", err, core.ErrBusy)
		wantHeld(t, lease)
		joined, err := others.TryAcquire(core.ContextWithOwner(t.Context(), lease.Owner()), "foreign")
		if err != nil {
			t.Fatalf("acquire under the owner: %v", err)
		}
		release(t, joined)
		wantBusy(t, others, "foreign")
		release(t, lease)
		wantFree(t, others, "foreign")
	})
	t.Run("panic releases the key", func(t *testing.T) {
		t.Parallel()
		defer func() {
			if r := recover(); r != "boom" {
				t.Errorf("recovered %v, want the panic", r)
			}
			wantFree(t, others, "panic")
		}()
		_ = l.Do(t.Context(), "panic", func(context.Context) error { panic("boom") })
	})
	// Two callers under one lease exclude each other from another key.
	t.Run("two goroutines under one lease", func(t *testing.T) {
		t.Parallel()
		outer := acquire(t, l, "outer")
		inner := acquireUnder(t, outer.Context(), l, "inner")
		_, err := l.TryAcquire(outer.Context(), "inner")
		wantErr(t, "the second goroutine's attempt", err, core.ErrBusy)
		release(t, inner)
		release(t, outer)
	})
}

// TestChurn checks that thousands of acquires leave nothing in the process and on the
// server (hazard 51).
func TestChurn(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	t.Run("thousands of acquires leave nothing", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		asks := inspect(t, server)
		c := newChild(t, plan{Addr: server.Addr})
		id := c.send(order{Op: "churn", Key: "churn", N: count(20_000), TTL: 5 * time.Second})
		before, after := c.await(id, "before").Count, c.await(id, "after").Count
		t.Logf("before: %v, after: %v", before, after)
		for what, more := range map[string]int{"goroutines": 2, "files": 20, "heap": 8 << 20, "connections": 20} {
			if after[what] > before[what]+more {
				t.Errorf("%s: %d before, %d after", what, before[what], after[what])
			}
		}
		if n := asks.stats()["connected_clients"]; n > 30 {
			t.Errorf("the server has %d clients", n)
		}
		testserver.Eventually(t, store.WaiterLife+slack, "the server has forgotten everything", func() bool { return len(asks.scan("")) == 0 })
	})
}
