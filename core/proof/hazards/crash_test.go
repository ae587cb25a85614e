package hazards_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

const (
	// pollCap is greater than the pause of a waiter between two requests, if at most 40
	// claims wait for the key (pollEvery in core/times.go, plus a tenth).
	pollCap = 2300 * time.Millisecond
	// slack allows for a machine that is busy with other tests.
	slack = 5 * time.Second
)

// TestCrash kills processes, and ends some with SIGTERM.
func TestCrash(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	server := testserver.StartRedis(t)

	// hazard 48. The key of a dead holder is granted when the hold has expired, and not
	// earlier.
	t.Run("take over after expiry", func(t *testing.T) {
		t.Parallel()
		takeOver(t, server, "dead", count(200))
	})
	// hazard 40
	t.Run("server without active expiry", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t, "--enable-debug-command", "yes")
		server.Do("DEBUG", "SET-ACTIVE-EXPIRE", "0")
		takeOver(t, server, "expired", 10)
	})
	// hazard 42. The waiter behind the dead head is granted the key when the head's
	// place has expired.
	t.Run("dead head of a fair queue", func(t *testing.T) {
		t.Parallel()
		trials(t, count(100), func(t *testing.T, n int) { deadHead(t, server, fmt.Sprintf("head:%d", n)) })
	})
	// hazard 49
	t.Run("SIGTERM releases every lock", func(t *testing.T) {
		t.Parallel()
		asks := inspect(t, server)
		trials(t, 10, func(t *testing.T, n int) {
			prefix := fmt.Sprintf("ending%d:", n)
			c := newChild(t, plan{Addr: server.Addr, Prefix: prefix})
			if held := c.await(c.send(order{Op: "crowd", Key: "k", N: 100, TTL: time.Minute}), "held"); held.Count["refused"] > 0 {
				t.Fatalf("%d of 100 locks were refused", held.Count["refused"])
			}
			if held := len(asks.scan(prefix)); held != 100 {
				t.Fatalf("test setup: %d keys are held", held)
			}
			start := mono()
			c.signal(syscall.SIGTERM)
			select {
			case <-c.gone:
			case <-time.After(patience):
				t.Fatal("the process did not end")
			}
			if code := c.cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("the process ended with %d", code)
			}
			if took := ms(start, mono()); took > slack {
				t.Errorf("the process ended after %v", took)
			}
			if left := asks.scan(prefix); len(left) > 0 {
				t.Errorf("%d keys are left", len(left))
			}
		})
	})
}

// takeOver kills holders at any phase of their extensions while another process waits.
func takeOver(t *testing.T, server *testserver.Redis, name string, n int) {
	const ttl = 1500 * time.Millisecond
	bit := newBites(t, "a holder was killed while it held", n*8/10)
	trials(t, n, func(t *testing.T, n int) {
		key := fmt.Sprintf("%s:%d", name, n)
		asks := inspect(t, server)
		c := newChild(t, plan{Addr: server.Addr})
		lease, _ := c.acquire(order{Key: key, TTL: ttl})
		hold := asks.hold(key)
		next, fails := make(chan int64, 1), make(chan error, 1)
		l := newLocker(t, server.Addr)
		go func() {
			_, err := l.Acquire(context.Background(), key, core.Wait(patience))
			next <- mono()
			fails <- err
		}()
		testserver.Eventually(t, patience, "a claim waits", func() bool { return asks.waiters(key) == 1 })
		time.Sleep(rand.N(ttl))
		expiry := asks.expiry(key, hold)
		c.kill()
		killed := mono()
		if _, lost, _ := c.find(lease, "ended"); !lost && expiry > 0 {
			bit.add()
		}
		granted := <-next
		if err := <-fails; err != nil {
			t.Errorf("the waiter: %v", err)
		}
		if granted < expiry {
			t.Errorf("the key was taken over %v before the lease was over", ms(granted, expiry))
		}
		if took := ms(killed, granted); took > ttl+pollCap+slack {
			t.Errorf("the key was taken over %v after the crash", took)
		}
	})
}

func deadHead(t *testing.T, server *testserver.Redis, key string) {
	const ttl = 2 * time.Second
	asks := inspect(t, server)
	holder := acquire(t, newLocker(t, server.Addr), key)
	head := newChild(t, plan{Addr: server.Addr, Name: "head"})
	head.send(order{Op: "acquire", Key: key, TTL: ttl, Fair: true})
	testserver.Eventually(t, patience, "the head waits", func() bool { return asks.waiters(key) == 1 })
	l := newLocker(t, server.Addr)
	next := make(chan error, 1)
	go func() {
		_, err := l.Acquire(context.Background(), key, core.Fair(), core.TTL(ttl), core.Wait(patience))
		next <- err
	}()
	testserver.Eventually(t, patience, "a claim waits behind it", func() bool { return asks.waiters(key) == 2 })
	head.kill()
	start := mono()
	release(t, holder)
	if err := <-next; err != nil {
		t.Errorf("the waiter behind the dead head: %v", err)
	}
	if took := ms(start, mono()); took > ttl+pollCap+slack {
		t.Errorf("it was served %v after the head had died", took)
	}
}

// TestKeysExpire kills clients at any time, and checks that no key lacks an expiry
// (hazard 25).
func TestKeysExpire(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	// No look finds a key without an expiry.
	t.Run("clients killed at any time", func(t *testing.T) {
		t.Parallel()
		const ttl = 2 * time.Second
		server := testserver.StartRedis(t)
		asks := inspect(t, server)
		kills, done := make(chan struct{}, count(1000)), make(chan struct{})
		for range count(1000) {
			kills <- struct{}{}
		}
		close(kills)
		var wg sync.WaitGroup
		for n := range 3 {
			wg.Go(func() {
				for range kills {
					c := newChild(t, plan{Addr: server.Addr, Name: fmt.Sprintf("mixer %d", n)})
					c.await(c.send(order{Op: "mix", Key: "mixed", TTL: ttl, N: 8}), "mixing")
					time.Sleep(rand.N(60 * time.Millisecond))
					c.kill()
				}
			})
		}
		go func() {
			wg.Wait()
			close(done)
		}()
		looks, seen := 0, 0
		for over := false; !over; {
			select {
			case <-done:
				over = true
			default:
			}
			looks++
			seen += everyKeyEnds(t, asks, max(ttl, store.WaiterLife))
			time.Sleep(5 * time.Millisecond)
		}
		t.Logf("%d looks, %d keys", looks, seen)
		if seen < looks/4 {
			t.Errorf("test setup: %d keys in %d looks", seen, looks)
		}
	})
}

// everyKeyEnds reads the TTLs of all keys. It fails the test for each key without a
// TTL, or whose TTL exceeds the limit most by more than a second.
func everyKeyEnds(t *testing.T, asks inspector, most time.Duration) int {
	t.Helper()
	keys := asks.scan("")
	lives := make([]*redis.DurationCmd, len(keys))
	_, err := asks.Pipelined(context.Background(), func(p redis.Pipeliner) error {
		for i, key := range keys {
			lives[i] = p.PTTL(context.Background(), key)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		if d := lives[i].Val(); d == -1 || d > most+time.Second {
			t.Errorf("%s lives for %v: %v", key, d, asks.HGetAll(context.Background(), key).Val())
		}
	}
	return len(keys)
}

func (i inspector) scan(prefix string) []string {
	i.t.Helper()
	var all []string
	it := i.Scan(context.Background(), 0, prefix+"*", 1000).Iterator()
	for it.Next(context.Background()) {
		all = append(all, it.Val())
	}
	if err := it.Err(); err != nil {
		i.t.Fatal(err)
	}
	return all
}
