package hazards_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestServerClock checks locks on servers whose clocks are wrong. The holders' clocks
// are right.
func TestServerClock(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	// hazard 19. The clock is set forward by a minute. The holder is notified by its
	// next extension, and only its token keeps its writes out.
	t.Run("limit of clock set forward", forward)
	// hazard 20. The clock is set back by an hour. The key of a dead holder is taken
	// over in time.
	t.Run("set back with dead holder", back)
	// hazard 20. The clock is set back by an hour. A living holder keeps its key until
	// its release.
	t.Run("set back with living holder", backAlive)
	// hazards 20 and 34
	t.Run("limit of absent key", tokenBack)
	// hazard 20
	t.Run("limit of plain key", backPlain)
}

// takeovers counts trials, overlaps, and stale writes that were accepted (stale) or
// refused, for the proof's report.
type takeovers struct{ trials, overlaps, stale, refused atomic.Int64 }

func (s *takeovers) note(t *testing.T, fault string) {
	t.Cleanup(func() {
		n := int(s.trials.Load())
		tally.Note(t, tally.Facts{
			Part: "processes", Runs: n, Faults: map[string]int{fault: n},
			Violations: map[string]int{"stale writes": int(s.stale.Load())},
			Expected:   map[string]int{"overlaps": int(s.overlaps.Load())},
			Outcomes:   map[string]int{"stale writes refused": int(s.refused.Load())},
		})
		if !t.Failed() && s.refused.Load() < s.trials.Load() {
			t.Errorf("test setup: %d stale writes were tried in %d trials", s.refused.Load(), n)
		}
	})
}

// usurp acquires lease's key through another locker after lease's hold has vanished from
// the server. The test fails unless the holder is notified by its next extension, and the
// register distinguishes the two holders by their tokens. usurp reports whether both held
// the key at the same time.
func (s *takeovers) usurp(t *testing.T, lease *core.Lease, ttl time.Duration, rivals *core.Locker) (overlap bool) {
	t.Helper()
	reg, vanished := newRegister(t), mono()
	rival := acquire(t, rivals, lease.Key(), core.TTL(ttl), core.Wait(patience), core.Fenced())
	overlap = lease.Context().Err() == nil
	if !reg.write(rival.Token(), "rival") {
		t.Error("the register refused the rival: its token is not newer")
	}
	if reg.write(lease.Token(), "holder") {
		t.Errorf("the register took the stale write: token %d after %d", lease.Token(), rival.Token())
		s.stale.Add(1)
	} else {
		s.refused.Add(1)
	}
	end := ended(t, lease)
	wantLost(t, lease)
	// Without a failed extension, the lease would be trusted for more than 5/9 of the
	// TTL.
	if took := ms(vanished, end); took > ttl*5/9 {
		t.Errorf("the holder was notified after %v, its lease is %v long", took, ttl)
	}
	wantErr(t, "release of a lost lease", lease.Release(context.Background()), core.ErrLost)
	wantHeld(t, rival)
	release(t, rival)
	s.trials.Add(1)
	if overlap {
		s.overlaps.Add(1)
	}
	return overlap
}

func forward(t *testing.T) {
	t.Parallel()
	const ttl = 18 * time.Second
	var seen takeovers
	seen.note(t, "clock set forward")
	both := newBites(t, "two held until the loss", count(30)/2)
	trials(t, count(30), func(t *testing.T, n int) {
		clock := testserver.NewClock(t, 1)
		server := clock.StartRedis()
		key := fmt.Sprintf("forward:%d", n)
		lease := acquire(t, newLocker(t, server.Addr), key, core.TTL(ttl))
		time.Sleep(rand.N(ttl / 3)) // at any phase of its extensions
		clock.Step(time.Minute)
		if seen.usurp(t, lease, ttl, newLocker(t, server.Addr)) {
			both.add()
		}
	})
}

func back(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	n := count(30)
	tally.Note(t, tally.Facts{Part: "processes", Runs: n, Faults: map[string]int{"clock set back": n}})
	trials(t, n, func(t *testing.T, n int) {
		clock := testserver.NewClock(t, 1)
		server := clock.StartRedis()
		key := fmt.Sprintf("back:%d", n)
		asks := inspect(t, server)
		c := newChild(t, plan{Addr: server.Addr})
		_, first := c.acquire(order{Key: key, TTL: ttl})
		hold := asks.hold(key)
		var opts []core.AcquireOption
		if n%2 == 0 {
			opts = append(opts, core.Fair())
		}
		next, fails := make(chan *core.Lease, 1), make(chan error, 1)
		l := newLocker(t, server.Addr)
		var granted int64
		go func() {
			lease, err := l.Acquire(context.Background(), key, append(opts, core.Wait(patience))...)
			granted = mono()
			fails <- err
			next <- lease
		}()
		testserver.Eventually(t, patience, "a claim waits", func() bool { return asks.waiters(key) == 1 })
		time.Sleep(rand.N(ttl))
		expiry := asks.expiry(key, hold)
		clock.Step(-time.Hour)
		c.kill()
		killed := mono()
		if err := <-fails; err != nil {
			t.Fatalf("the waiter: %v", err)
		}
		lease := <-next
		if granted < expiry {
			t.Errorf("the key was taken over %v before the lease was over", ms(granted, expiry))
		}
		// The server corrects the hold's deadline at the waiter's first request after
		// the step.
		if took := ms(killed, granted); took > ttl+2*pollCap+slack {
			t.Errorf("the key was taken over %v after the crash", took)
		}
		if lease.Token() <= first.Token {
			t.Errorf("token %d after %d", lease.Token(), first.Token)
		}
		wantHeld(t, lease)
		release(t, lease)
		// The key stays until the clock, which was set back, has passed the key's last
		// token.
		everyKeyEnds(t, asks, time.Hour+max(ttl, store.WaiterLife))
	})
}

func backAlive(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	trials(t, count(30), func(t *testing.T, n int) {
		clock := testserver.NewClock(t, 1)
		server := clock.StartRedis()
		oracle := newOracle(t, 2)
		key := fmt.Sprintf("alive:%d", n)
		l, asks := newLocker(t, server.Addr), inspect(t, server)
		lease := acquire(t, l, key, core.TTL(ttl))
		s := span{Key: key, Who: "holder", From: mono(), Token: lease.Token()}
		var wg sync.WaitGroup
		rivals := newLocker(t, server.Addr)
		wg.Go(func() {
			rival, err := rivals.Acquire(context.Background(), key, core.Wait(patience))
			if err != nil {
				t.Errorf("the rival: %v", err)
				return
			}
			r := span{Key: key, Who: "rival", From: mono(), Token: rival.Token()}
			r.Until = guard(rival, 20*time.Millisecond, func() {})
			oracle.add(r)
			release(t, rival)
		})
		testserver.Eventually(t, patience, "a claim waits", func() bool { return asks.waiters(key) == 1 })
		clock.Step(-time.Hour)
		// Without extensions, the lease would end during this guard.
		s.Until = guard(lease, 3*ttl/2, func() {})
		wantHeld(t, lease)
		oracle.add(s)
		release(t, lease)
		wg.Wait()
	})
}

// tokenBack checks a limit: after the clock was set back, an absent key is granted with a
// lower token than before.
func tokenBack(t *testing.T) {
	t.Parallel()
	clock := testserver.NewClock(t, 1)
	server := clock.StartRedis()
	l := newLocker(t, server.Addr)
	first := acquire(t, l, "absent")
	release(t, first)
	if n := len(inspect(t, server).scan("lk2:")); n != 0 {
		t.Fatalf("test setup: %d keys are left", n)
	}
	clock.Step(-time.Hour)
	next := acquire(t, l, "absent")
	if next.Token() >= first.Token() {
		t.Errorf("token %d after %d; if this is prevented now, the documentation promises too little", next.Token(), first.Token())
	}
	release(t, next)
	if again := acquire(t, l, "absent"); again.Token() <= next.Token() {
		t.Errorf("token %d after %d", again.Token(), next.Token())
	}
	tally.Note(t, tally.Facts{Part: "limits", Runs: 1, Faults: map[string]int{"clock set back": 1}, Expected: map[string]int{"tokens back": 1}})
}

// backPlain checks a limit: after the clock was set back by an hour, the plain key of a
// dead holder, or Redisson's, stays busy for an hour.
func backPlain(t *testing.T) {
	t.Parallel()
	clock := testserver.NewClock(t, 1)
	server := clock.StartRedis()
	// The leases are never extended, as if their holders had died.
	leases := make(map[string]*core.Lease)
	forms := map[string][]redisstore.Option{"plain": {redisstore.WithPlainKeys()}, "redisson": {redisstore.WithRedisson()}}
	for key, opts := range forms {
		leases[key] = acquire(t, lockerOf(t, testclient.Redis(t, server.Addr), opts), key, core.TTL(3*time.Second), core.NoRenew())
	}
	clock.Step(-time.Hour)
	for key, opts := range forms {
		<-leases[key].Context().Done()
		_, err := lockerOf(t, testclient.Redis(t, server.Addr), opts).TryAcquire(t.Context(), key)
		var busy *core.BusyError
		if !errors.As(err, &busy) || busy.RetryAfter < 50*time.Minute {
			t.Errorf("%s: got %v, want busy for an hour; if this is prevented now, the documentation promises too little", key, err)
		}
	}
	tally.Note(t, tally.Facts{Part: "limits", Runs: 1, Faults: map[string]int{"clock set back": 1}, Expected: map[string]int{"stuck waiters": 1}})
}

// TestPromotedClock checks the limit of a replica whose clock differs from the master's
// (hazard 21). The test expects two holders, which the token distinguishes.
func TestPromotedClock(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	const ttl, ahead = 18 * time.Second, 40 * time.Second
	var seen takeovers
	seen.note(t, "replica with another clock promoted")
	both := newBites(t, "two held until the loss", count(20)/2)
	trials(t, count(20), func(t *testing.T, n int) {
		clock := testserver.NewClock(t, 1)
		master := testserver.StartRedis(t)
		replica := clock.StartRedis("--replicaof", "127.0.0.1", fmt.Sprint(master.Port()))
		clock.Step(ahead)
		proxy := testserver.NewRedisProxy(t, master.Addr)
		client := testclient.Redis(t, proxy.Addr)
		l, key := lockerOf(t, client, nil), fmt.Sprintf("promoted:%d", n)
		lease := acquire(t, l, key, core.TTL(ttl))
		testserver.Eventually(t, patience, "the replica has the grant", func() bool {
			return client.Wait(context.Background(), 1, time.Second).Val() == 1 && replica.Field("replication", "master_link_status") == "up"
		})
		master.Kill()
		replica.Do("REPLICAOF", "NO", "ONE")
		proxy.Retarget(replica.Addr)
		proxy.Sever()
		if seen.usurp(t, lease, ttl, newLocker(t, replica.Addr)) {
			both.add()
		}
		store, err := redisstore.New(testclient.Redis(t, replica.Addr))
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		testserver.Eventually(t, patience, "a check says that the clock is ahead", func() bool {
			err := store.Check(t.Context())
			return err != nil && strings.Contains(err.Error(), "its clock is 40 s ahead")
		})
	})
}
