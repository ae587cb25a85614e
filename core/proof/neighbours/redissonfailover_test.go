package neighbours_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/neighbours"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// goWaits starts a waiter in Go. While the server is unavailable, an acquire fails, and
// the waiter repeats it.
func (s *shared) goWaits(name string) <-chan *core.Lease {
	entered := make(chan *core.Lease, 1)
	go func() {
		for s.t.Context().Err() == nil {
			lease, err := s.locks.Acquire(s.t.Context(), name, core.TTL(5*time.Minute), core.Wait(limit))
			if err == nil {
				entered <- lease
				return
			}
			if !errors.Is(err, core.ErrUnavailable) && !errors.Is(err, core.ErrBusy) && s.t.Context().Err() == nil {
				s.t.Errorf("%s: the waiter got %v", name, err)
				return
			}
		}
	}()
	return entered
}

func (s *shared) enters(entered <-chan *core.Lease) *core.Lease {
	s.t.Helper()
	select {
	case lease := <-entered:
		return lease
	case <-time.After(limit):
		s.t.Fatal("the waiter in Go did not enter")
		return nil
	}
}

// waitsStill fails the test if a waiter of either side has entered.
func (s *shared) waitsStill(here <-chan *core.Lease, there *neighbours.Call) {
	s.t.Helper()
	select {
	case <-here:
		s.t.Error("the waiter in Go entered beside Redisson")
	case <-there.Done():
		s.t.Error("the waiter of Redisson entered beside the kit")
	default:
	}
}

// entersThere waits until the thread has the lock. A waiter of Redisson whose request
// fails in an outage gets an exception. In that case entersThere makes the thread wait
// again.
func (s *shared) entersThere(th *neighbours.Thread, kind, name string, waits *neighbours.Call) {
	s.t.Helper()
	_, err := waits.Answer()
	for end := time.Now().Add(limit); err != nil; {
		if time.Now().After(end) {
			s.t.Fatal(err)
		}
		s.t.Logf("the waiter of Redisson got %v, and waits again", err)
		err = th.Lock(kind, name, 5*time.Minute)
	}
}

// leavesThere unlocks a lock as often as the thread has entered it. A call of lock that
// threw an exception may count too.
func (s *shared) leavesThere(th *neighbours.Thread, kind, name string) {
	s.t.Helper()
	n, err := th.Holds(kind, name)
	s.must(err)
	for range n {
		s.must(th.Unlock(kind, name))
	}
}

// answers repeats ask until Redisson has connected again, and returns the answer.
func (s *shared) answers(ask func() (bool, error)) (yes bool) {
	s.t.Helper()
	testserver.Eventually(s.t, limit, "Redisson is connected", func() bool {
		got, err := ask()
		yes = got
		return err == nil
	})
	return yes
}

// goIsKeptOutAgain fails the test, like goIsKeptOut, unless the lock is busy in Go. It
// repeats the attempt while the server is still unavailable after an outage.
func (s *shared) goIsKeptOutAgain(name string) {
	s.t.Helper()
	testserver.Eventually(s.t, limit, name+" is busy", func() bool {
		_, err := s.locks.TryAcquire(s.t.Context(), name)
		if err == nil {
			s.t.Fatalf("%s: got the lock beside Redisson's", name)
		}
		return errors.Is(err, core.ErrBusy)
	})
}

// throughOutage makes each side hold a lock for which the other side waits. Meanwhile
// outage takes the server away without losing a write. Both sides must keep their
// locks, and each waiter must enter after the other side's release.
func throughOutage(s *shared, name string, outage func()) {
	const kind = neighbours.RLock
	theirs, ours := name+"-theirs", name+"-ours"
	jane, joe, jim := s.java.Thread("jane"), s.java.Thread("joe"), s.java.Thread("jim")
	s.must(jane.Lock(kind, theirs, 5*time.Minute))
	here := s.goWaits(theirs)
	s.awaitListener(theirs, kind)
	lease := s.goHolds(ours, core.TTL(5*time.Minute))
	there := joe.Begin("lock", kind, ours, 5*time.Minute)
	s.awaitListener(ours, kind)

	outage()
	if !s.answers(func() (bool, error) { return jane.Held(kind, theirs) }) {
		s.t.Error("Redisson has lost its lock")
	}
	s.goIsKeptOutAgain(theirs)
	if s.answers(func() (bool, error) { return jim.TryLockNow(kind, ours) }) {
		s.t.Error("Redisson got the lock beside the kit's")
	}
	s.must(lease.Extend(s.t.Context(), 5*time.Minute))
	s.waitsStill(here, there)

	s.awaitListener(ours, kind) // Redisson has subscribed again
	s.release(lease)
	s.entersThere(joe, kind, ours, there)
	s.goIsKeptOut(ours)
	s.leavesThere(joe, kind, ours)
	s.must(jane.Unlock(kind, theirs))
	s.release(s.enters(here))
	s.release(s.goHolds(ours))
}

// masterDies kills the master. The replicas have all locks, so both sides keep their
// locks at the new master. A lease of the kit can expire before there is a new master.
// It is lost before a waiter of Redisson enters.
func masterDies(s *shared, sentinel *testserver.Sentinel) {
	const kind = neighbours.RLock
	jane, jack := s.java.Thread("janet"), s.java.Thread("jack")
	s.must(jane.Lock(kind, "dies-renewed", 0))
	throughOutage(s, "dies", func() {
		brief := s.goHolds("dies-brief", core.TTL(testserver.SentinelDownAfter/2))
		waits := jack.Begin("lock", kind, "dies-brief", 5*time.Minute)
		old := sentinel.Master()
		replicated(s, old, sentinel.Replicas())
		old.Kill()
		master := sentinel.AwaitFailover(old)
		s.entersThere(jack, kind, "dies-brief", waits)
		if brief.Context().Err() == nil {
			s.t.Error("Redisson entered before the kit reported the loss")
		}
		s.goIsKeptOutAgain("dies-brief")
		s.lost(brief)
		s.leavesThere(jack, kind, "dies-brief")
		old.Restart("--replicaof", "127.0.0.1", strconv.Itoa(master.Port()))
		sentinel.AwaitOK()
	})
	// Redisson's watchdog continues at the new master.
	var last time.Duration
	testserver.Eventually(s.t, limit, "Redisson extends its lock at the new master", func() bool {
		left, err := s.asks.PTTL(s.t.Context(), "dies-renewed").Result()
		s.must(err)
		if left < 0 {
			s.t.Fatal("Redisson has lost the lock that its watchdog extends")
		}
		risen := left > last && last > 0
		last = left
		return risen
	})
	s.goIsKeptOut("dies-renewed")
	s.must(jane.Unlock(kind, "dies-renewed"))
}

func replicated(s *shared, master *testserver.Redis, replicas []*testserver.Redis) {
	s.t.Helper()
	testserver.Eventually(s.t, testserver.Settled, "the replicas have everything", func() bool {
		end := master.Field("replication", "master_repl_offset")
		for _, r := range replicas {
			if r.Field("replication", "slave_repl_offset") != end {
				return false
			}
		}
		return true
	})
}

// replicasLag expects a limit. The new master lacks the last locks of both sides, so a
// lock has two holders. The kit reports the loss at its next extension, before the
// lease expires. Redisson refuses the unlock.
func replicasLag(s *shared, sentinel *testserver.Sentinel) {
	const kind = neighbours.RLock
	jane, joe := s.java.Thread("jane"), s.java.Thread("joe")
	master, replicas := sentinel.Master(), sentinel.Replicas()
	s.release(s.goHolds("lags-warm"))
	testserver.CutReplicas(master, replicas...)
	lease := s.goHolds("lags-ours", core.TTL(45*time.Second))
	strict, err := redisstore.New(s.asks, redisstore.WithRedisson(), redisstore.WithReplicas(1, 500*time.Millisecond))
	s.must(err)
	c := store.Claim{Key: "lags-strict", Owner: "owner", Lease: "lease", Weight: store.All, Limit: store.All, TTL: time.Minute}
	if _, err := strict.Acquire(s.t.Context(), c); !errors.Is(err, core.ErrUnavailable) || !strings.Contains(err.Error(), "0 of 1 replicas") {
		s.t.Errorf("with replicas: got %v, want that no replica has the grant", err)
	}
	_ = strict.Close()
	// Redisson can refuse its first lock, because it knows of replicas that do not
	// answer.
	testserver.Eventually(s.t, limit, "Redisson locks without replicas", func() bool {
		err := jane.Lock(kind, "lags-theirs", 5*time.Minute)
		if err != nil {
			s.t.Logf("Redisson got %v", err)
		}
		return err == nil
	})
	master.Kill()
	for _, r := range replicas {
		r.Resume()
	}
	sentinel.AwaitFailover(master)

	if !s.answers(func() (bool, error) { return joe.TryLockNow(kind, "lags-ours") }) || lease.Context().Err() != nil {
		s.t.Errorf("there are no two holders (%v); the documentation promises too little", context.Cause(lease.Context()))
	}
	expires := lease.Deadline()
	<-lease.Context().Done()
	if cause := context.Cause(lease.Context()); !errors.Is(cause, core.ErrLost) || time.Now().After(expires) && lease.Deadline().Equal(expires) {
		s.t.Errorf("got %v, %v after the expiry, want the loss before it", cause, time.Since(expires))
	}
	s.lost(lease)
	s.must(joe.Unlock(kind, "lags-ours"))
	lease = s.enters(s.goWaits("lags-theirs"))
	if s.answers(func() (bool, error) { return jane.Held(kind, "lags-theirs") }) {
		s.t.Error("Redisson holds the lock beside the kit")
	}
	s.refused(jane.Unlock(kind, "lags-theirs"))
	s.release(lease)
	tally.Note(s.t, tally.Facts{
		Part: "limits", Runs: 1, Faults: map[string]int{"failover that lost the key": 1}, Grants: 4, Expected: map[string]int{"overlaps": 2},
	})
}

// restarts makes both sides hold and wait while the server restarts, first with its
// data and then without.
func restarts(s *shared, server *testserver.Redis) {
	const kind = neighbours.RLock
	throughOutage(s, "kept", func() {
		server.Kill()
		server.Restart()
	})

	// After a restart without data, the waiters enter. The kit reports the loss, and
	// Redisson refuses the unlock.
	jane, joe := s.java.Thread("jane"), s.java.Thread("joe")
	s.must(jane.Lock(kind, "forgotten-theirs", 5*time.Minute))
	here := s.goWaits("forgotten-theirs")
	s.awaitListener("forgotten-theirs", kind)
	lease := s.goHolds("forgotten-ours", core.TTL(20*time.Second))
	there := joe.Begin("lock", kind, "forgotten-ours", 5*time.Minute)
	s.awaitListener("forgotten-ours", kind)
	server.RestartEmpty()
	next := s.enters(here)
	if s.answers(func() (bool, error) { return jane.Held(kind, "forgotten-theirs") }) {
		s.t.Error("Redisson holds the lock beside the kit")
	}
	s.refused(jane.Unlock(kind, "forgotten-theirs"))
	s.release(next)
	s.entersThere(joe, kind, "forgotten-ours", there)
	if err := lease.Extend(s.t.Context(), time.Minute); !errors.Is(err, core.ErrLost) {
		s.t.Errorf("extend: got %v, want lost", err)
	}
	s.lost(lease)
	s.goIsKeptOut("forgotten-ours")
	s.leavesThere(joe, kind, "forgotten-ours")
}
