package neighbours_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/neighbours"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// shared has a Redis with a client of each side: Redisson in Java, and the kit in Go.
// In these tests "here" means in Go, and "there" means in Java.
type shared struct {
	t     *testing.T
	asks  redis.UniversalClient
	store *redisstore.Store
	locks *core.Locker
	java  *neighbours.Redisson
}

func (s *shared) at(t *testing.T) *shared {
	c := *s
	c.t = t
	return &c
}

func newShared(t *testing.T, client redis.UniversalClient, version string, addrs ...string) *shared {
	t.Helper()
	return share(t, client, neighbours.StartRedisson(t, version, addrs...))
}

func share(t *testing.T, client redis.UniversalClient, java *neighbours.Redisson) *shared {
	t.Helper()
	s, err := redisstore.New(client, redisstore.WithRedisson())
	if err != nil {
		t.Fatal(err)
	}
	locks, err := core.New(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// A failed test leaves leases.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = locks.Close(ctx)
		_ = s.Close()
	})
	return &shared{t, client, s, locks, java}
}

// soon limits the wait for the effect of a message, on a busy machine.
const soon = 20 * time.Second

func (s *shared) goHolds(name string, opts ...core.AcquireOption) *core.Lease {
	s.t.Helper()
	lease, err := s.locks.Acquire(s.t.Context(), name, append([]core.AcquireOption{core.Wait(soon)}, opts...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	return lease
}

func (s *shared) goIsKeptOut(name string) {
	s.t.Helper()
	if lease, err := s.locks.TryAcquire(s.t.Context(), name); !errors.Is(err, core.ErrBusy) {
		s.t.Errorf("%s: got %v, %v, want busy", name, lease, err)
	}
}

func (s *shared) release(lease *core.Lease) {
	s.t.Helper()
	if err := lease.Release(context.Background()); err != nil {
		s.t.Error(err)
	}
}

func (s *shared) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// refused fails the test unless Redisson refused an unlock because the thread does not
// hold the lock.
func (s *shared) refused(err error) {
	s.t.Helper()
	if other := (*neighbours.Error)(nil); !errors.As(err, &other) || other.Class != "IllegalMonitorStateException" {
		s.t.Errorf("unlock: got %v, want IllegalMonitorStateException", err)
	}
}

// lost releases a lease that was lost to another holder. It fails the test unless the
// release returns core.ErrLost and leaves the hold of the other holder unchanged.
func (s *shared) lost(lease *core.Lease) {
	s.t.Helper()
	if err := lease.Release(context.Background()); !errors.Is(err, core.ErrLost) {
		s.t.Errorf("release: got %v, want lost", err)
	}
	if n := s.asks.HLen(s.t.Context(), lease.Key()).Val(); n != 1 {
		s.t.Errorf("%s: got %d holds after the release of a lost lease, want that of the other", lease.Key(), n)
	}
}

func (s *shared) javaIs(want bool, got bool, err error) {
	s.t.Helper()
	if got != want || err != nil {
		s.t.Errorf("tryLock: got %v, %v, want %v", got, err, want)
	}
}

// TestSharedLocks shows that Redisson and the kit exclude each other, extend their
// holds, and wake each other's waiters.
func TestSharedLocks(t *testing.T) {
	t.Parallel()
	for _, version := range []string{neighbours.Redisson3, neighbours.Redisson4} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t)
			sharedLocks(t, newShared(t, testclient.Redis(t, server.Addr), version, server.Addr))
		})
	}
}

func TestSharedLocksOnCluster(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T, addrs ...string) *neighbours.Redisson{
		"redisson-3": func(t *testing.T, addrs ...string) *neighbours.Redisson {
			return neighbours.StartRedisson(t, neighbours.Redisson3, addrs...)
		},
		"redisson-4": func(t *testing.T, addrs ...string) *neighbours.Redisson {
			return neighbours.StartRedisson(t, neighbours.Redisson4, addrs...)
		},
		"redisson-4 without sharded messages": func(t *testing.T, addrs ...string) *neighbours.Redisson {
			return neighbours.StartRedissonUnsharded(t, neighbours.Redisson4, addrs...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := testserver.StartCluster(t, false, testserver.NoFailover...)
			sharedLocks(t, share(t, testclient.Cluster(t, cluster), start(t, cluster.Addrs()...)))
		})
	}
}

// TestSharedLocksOnSentinel shows that each side keeps its own lock through a failover
// that loses no write, planned or after the death of the master. It expects two holders
// of a lock that a failover loses.
func TestSharedLocksOnSentinel(t *testing.T) {
	t.Parallel()
	for _, version := range []string{neighbours.Redisson3, neighbours.Redisson4} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			sentinel := testserver.StartSentinel(t)
			s := share(t, testclient.Sentinel(t, sentinel), neighbours.StartRedissonOnSentinel(t, version, sentinel))
			jane := s.java.Thread("jane")
			s.must(jane.Lock(neighbours.RLock, "theirs", 5*time.Minute))
			lease := s.goHolds("ours", core.TTL(time.Minute))
			sentinel.HandOver()
			testserver.Eventually(t, limit, "the kit finds Redisson's lock at the new master", func() bool {
				_, err := s.locks.TryAcquire(t.Context(), "theirs")
				if err == nil {
					t.Fatal("got the lock beside Redisson's")
				}
				return errors.Is(err, core.ErrBusy)
			})
			testserver.Eventually(t, limit, "Redisson finds the kit's lock at the new master", func() bool {
				got, err := jane.TryLockNow(neighbours.RLock, "ours")
				if got {
					t.Fatal("Redisson got the lock beside the kit's")
				}
				return err == nil
			})
			s.must(jane.Unlock(neighbours.RLock, "theirs"))
			s.release(s.goHolds("theirs"))
			s.must(lease.Context().Err())
			s.release(lease)
			s.must(jane.Lock(neighbours.RLock, "ours", 0))
			masterDies(s, sentinel)
			replicasLag(s, sentinel)
		})
	}
}

// TestSharedLocks_WakeUps measures the time from an unlock of one side to the entry of
// a waiter of the other side. It logs the times, and never fails because of them.
func TestSharedLocks_WakeUps(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	s := newShared(t, testclient.Redis(t, server.Addr), neighbours.Redisson4, server.Addr)
	jane := s.java.Thread("jane")
	const name, rounds = "wake", 50
	var here, there []time.Duration
	for range rounds {
		lease := s.goHolds(name, core.TTL(5*time.Minute))
		waits := jane.Begin("lock", neighbours.RLock, name, 5*time.Minute)
		s.awaitListener(name, neighbours.RLock)
		begin := time.Now()
		s.release(lease)
		_, err := waits.Answer()
		there = append(there, time.Since(begin))
		s.must(err)
		entered := make(chan *core.Lease)
		go func() { entered <- s.goHolds(name, core.TTL(5*time.Minute)) }()
		s.awaitListener(name, neighbours.RLock)
		begin = time.Now()
		s.must(jane.Unlock(neighbours.RLock, name))
		lease = <-entered
		here = append(here, time.Since(begin))
		s.release(lease)
	}
	for _, d := range [][]time.Duration{here, there} {
		slices.Sort(d)
	}
	t.Logf("from the unlock to the entry, median and 90 %%: the kit waits %v, %v; Redisson waits %v, %v",
		here[rounds/2], here[rounds*9/10], there[rounds/2], there[rounds*9/10])
}

func sharedLocks(t *testing.T, s *shared) {
	jane, joe := s.java.Thread("jane"), s.java.Thread("joe")
	for _, kind := range []string{neighbours.RLock, neighbours.RFairLock, neighbours.RFencedLock, neighbours.RSpinLock} {
		name := core.Key("order", kind, "42")
		s.must(jane.Lock(kind, name, 0))
		s.goIsKeptOut(name)
		s.must(jane.Lock(kind, name, 0)) // re-entry
		s.must(jane.Unlock(kind, name))
		s.goIsKeptOut(name)
		s.must(jane.Unlock(kind, name))

		lease := s.goHolds(name, core.TTL(time.Second))
		got, err := jane.TryLockNow(kind, name)
		s.javaIs(false, got, err)
		// The wait is longer than the TTL, but the watchdog extends the lease.
		got, err = jane.TryLock(kind, name, 1500*time.Millisecond, 0)
		s.javaIs(false, got, err)
		inner := func() *core.Lease { // re-entry
			in, err := s.locks.Acquire(lease.Context(), name)
			s.must(err)
			return in
		}()
		if n := s.asks.HLen(t.Context(), name).Val(); n != 2 {
			t.Errorf("%s: the hash counts %d holds, want 2", kind, n)
		}
		s.release(inner)
		got, err = jane.TryLockNow(kind, name)
		s.javaIs(false, got, err)
		s.refused(jane.Unlock(kind, name))
		if lease.Context().Err() != nil {
			t.Errorf("%s: the lease is lost: %v", kind, context.Cause(lease.Context()))
		}

		// A release in Go wakes a waiter in Java. Without that, the waiter would wait
		// for minutes.
		s.release(lease)
		lease = s.goHolds(name, core.TTL(5*time.Minute))
		waiting := joe.Begin("lock", kind, name, time.Duration(0))
		s.awaitListener(name, kind)
		s.release(lease)
		if _, err := waiting.Answer(); err != nil {
			t.Fatal(err)
		}
		// An unlock in Java wakes a waiter in Go.
		s.must(joe.Unlock(kind, name))
		s.must(joe.Lock(kind, name, 5*time.Minute))
		entered := make(chan *core.Lease)
		go func() { entered <- s.goHolds(name) }()
		if kind == neighbours.RFairLock {
			// The waiter in Go polls: Redisson sends the message of a fair lock only to
			// its own waiters.
			s.must(joe.Unlock(kind, name))
		} else {
			s.awaitListener(name, neighbours.RLock)
			s.must(joe.Unlock(kind, name))
		}
		s.release(<-entered)
	}

	// After a forceUnlock by Redisson, the kit's lease is lost. Its release does not
	// change Redisson's next hold.
	t.Run("forceUnlock is a loss", func(t *testing.T) {
		s := s.at(t)
		lease := s.goHolds("forced", core.TTL(time.Second))
		woken := s.watch("forced")
		got, err := jane.ForceUnlock(neighbours.RLock, "forced")
		s.javaIs(true, got, err)
		s.awaitWoken(woken)
		s.must(jane.Lock(neighbours.RLock, "forced", 0))
		<-lease.Context().Done()
		s.lost(lease)
		if held, err := jane.Held(neighbours.RLock, "forced"); !held || err != nil {
			t.Errorf("the release of a lost lease has released the other's: %v, %v", held, err)
		}
		s.must(jane.Unlock(neighbours.RLock, "forced"))
	})
	t.Run("a hold that expires", func(t *testing.T) {
		s := s.at(t)
		s.must(jane.Lock(neighbours.RLock, "short", 300*time.Millisecond))
		lease := s.goHolds("short")
		s.refused(jane.Unlock(neighbours.RLock, "short"))
		got, err := joe.TryLockNow(neighbours.RLock, "short")
		s.javaIs(false, got, err)
		s.release(lease)
		lease = s.goHolds("short", core.TTL(300*time.Millisecond), core.NoRenew())
		s.must(jane.Lock(neighbours.RLock, "short", 0))
		if lease.Context().Err() == nil {
			t.Error("the lease is trusted beside the other's")
		}
		s.lost(lease)
		s.must(jane.Unlock(neighbours.RLock, "short"))
	})
	t.Run("renewals of Redisson", func(t *testing.T) { renewals(s.at(t)) })
	t.Run("waits that end", func(t *testing.T) { waitsThatEnd(s.at(t)) })
	t.Run("message of Redisson", func(t *testing.T) { messages(s.at(t)) })
	t.Run("revoked hold of Redisson", func(t *testing.T) { revokedThere(s.at(t)) })
	t.Run("revoked writer of Redisson", func(t *testing.T) { revokedWriter(s.at(t)) })
	t.Run("limit of readers beside RLock", func(t *testing.T) { ownReaders(s.at(t)) })
	t.Run("names of Key in Java", func(t *testing.T) { names(s.at(t)) })
	t.Run("tokens only grow", func(t *testing.T) {
		s := s.at(t)
		last := int64(0)
		for i := range 20 {
			var token int64
			if i%2 == 0 {
				var err error
				token, err = jane.LockToken("fenced", 0)
				s.must(err)
				s.must(jane.Unlock(neighbours.RFencedLock, "fenced"))
			} else {
				lease := s.goHolds("fenced", core.Fenced())
				token = int64(lease.Token())
				s.release(lease)
			}
			if token <= last {
				t.Errorf("token %d comes after %d", token, last)
			}
			last = token
		}
	})
	t.Run("limit of Redisson reader beside RLock", func(t *testing.T) {
		s := s.at(t)
		lease := s.goHolds("mixed")
		// Redisson also takes a read lock while its own RLock is held.
		s.must(jane.Lock(neighbours.RReadLock, "mixed", 0))
		s.must(jane.Unlock(neighbours.RReadLock, "mixed"))
		_ = lease.Release(context.Background())
		s.must(jane.Lock(neighbours.RWriteLock, "written", 0))
		s.goIsKeptOut("written")
		s.must(jane.Unlock(neighbours.RWriteLock, "written"))
		s.must(jane.Lock(neighbours.RReadLock, "written", 0))
		s.goIsKeptOut("written")
		s.must(jane.Unlock(neighbours.RReadLock, "written"))
	})
	t.Run("no update is lost", func(t *testing.T) {
		s := s.at(t)
		turns := tally.Trials(5000)
		var wg sync.WaitGroup
		count := func() {
			n, err := s.asks.Get(t.Context(), "counter").Int()
			if err != nil && err != redis.Nil {
				t.Error(err)
			}
			if err := s.asks.Set(t.Context(), "counter", strconv.Itoa(n+1), 0).Err(); err != nil {
				t.Error(err)
			}
		}
		wg.Go(func() {
			for range turns {
				if err := s.locks.Do(t.Context(), "turns", func(context.Context) error { count(); return nil }); err != nil {
					t.Error(err)
					return
				}
			}
		})
		wg.Go(func() {
			for range turns {
				if err := jane.Lock(neighbours.RLock, "turns", 0); err != nil {
					t.Error(err)
					return
				}
				count()
				if err := jane.Unlock(neighbours.RLock, "turns"); err != nil {
					t.Error(err)
					return
				}
			}
		})
		wg.Wait()
		if n, err := s.asks.Get(t.Context(), "counter").Int(); n != 2*turns || err != nil {
			t.Errorf("counted %d of %d, %v", n, 2*turns, err)
		}
	})
}

// awaitListener waits until a waiter has subscribed to the channel of a lock.
func (s *shared) awaitListener(name, kind string) {
	s.t.Helper()
	channel := "redisson_lock__channel:{" + name + "}"
	if kind == neighbours.RSpinLock {
		return // a waiter for a lock of this kind polls
	}
	testserver.Eventually(s.t, limit, name+" has a waiter that listens", func() bool {
		n, err := listeners(s.t.Context(), s.asks, channel)
		s.must(err)
		return n > 0
	})
}

// listeners counts, over all masters, the channels with a subscriber: the given
// channel, and the channels of a fair lock's waiters.
func listeners(ctx context.Context, client redis.UniversalClient, channel string) (n int64, err error) {
	count := func(ctx context.Context, node *redis.Client) error {
		for _, pattern := range []string{channel, channel + ":*"} {
			for _, list := range []*redis.StringSliceCmd{node.PubSubChannels(ctx, pattern), node.PubSubShardChannels(ctx, pattern)} {
				if list.Err() != nil {
					return list.Err()
				}
				n += int64(len(list.Val()))
			}
		}
		return nil
	}
	switch c := client.(type) {
	case *redis.Client:
		return n, count(ctx, c)
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			return count(ctx, node)
		})
		return n, err
	}
	return 0, fmt.Errorf("got %T", client)
}

var mu sync.Mutex // guards n of listeners, which asks all nodes at the same time

// TestSharedOutages pauses and kills each side while it holds a lock, and restarts the
// server with and without its data.
func TestSharedOutages(t *testing.T) {
	t.Parallel()
	for _, version := range []string{neighbours.Redisson3, neighbours.Redisson4} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
			s := newShared(t, testclient.Redis(t, server.Addr), version, server.Addr)
			jane := s.java.Thread("jane")

			// The JVM is paused for longer than its lease.
			s.must(jane.Lock(neighbours.RLock, "frozen", 0))
			s.java.Pause()
			lease := s.goHolds("frozen", core.TTL(time.Minute))
			s.java.Resume()
			if held, err := jane.Held(neighbours.RLock, "frozen"); held || err != nil {
				t.Errorf("held: got %v, %v, want false", held, err)
			}
			s.refused(jane.Unlock(neighbours.RLock, "frozen"))
			got, err := jane.TryLockNow(neighbours.RLock, "frozen")
			s.javaIs(false, got, err)
			s.release(lease)
			overtakenFair(s)
			goDies(s, server.Addr)

			restarts(s, server)

			for { // until Redisson has connected again
				if err := jane.Lock(neighbours.RLock, "killed", 0); err == nil {
					break
				}
			}
			s.goIsKeptOut("killed")
			s.java.Kill()
			s.release(s.goHolds("killed"))
		})
	}
}
