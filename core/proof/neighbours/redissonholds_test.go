package neighbours_test

import (
	"errors"
	"os"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/neighbours"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// renewals shows that the watchdog of each side extends its holds, and that the other
// side is refused while they last.
func renewals(s *shared) {
	const rises, ttl = 3, 5 * time.Second
	jane, joe := s.java.Thread("jane"), s.java.Thread("joe")
	risen, left := make(map[string]int), make(map[string]time.Duration)
	rise := func(name string) int {
		now, err := s.asks.PTTL(s.t.Context(), name).Result()
		s.must(err)
		if now > left[name] && left[name] > 0 {
			risen[name]++
		}
		left[name] = now
		return risen[name]
	}
	kinds := []string{neighbours.RLock, neighbours.RFairLock, neighbours.RFencedLock, neighbours.RSpinLock}
	for _, kind := range kinds {
		s.must(jane.Lock(kind, "renewed-"+kind, 0))
	}
	begin := time.Now()
	lease := s.goHolds("renewed-here", core.TTL(ttl))
	testserver.Eventually(s.t, limit, "each side has extended its hold three times", func() bool {
		done := rise("renewed-here") >= rises && time.Since(begin) > 3*ttl
		got, err := joe.TryLockNow(neighbours.RLock, "renewed-here")
		s.javaIs(false, got, err)
		for _, kind := range kinds {
			done = rise("renewed-"+kind) >= rises && done
			s.goIsKeptOut("renewed-" + kind)
		}
		return done
	})
	s.must(lease.Context().Err())
	s.release(lease)
	for _, kind := range kinds {
		s.must(jane.Unlock(kind, "renewed-"+kind))
		s.release(s.goHolds("renewed-" + kind))
	}
}

// waitsThatEnd starts a waiter with a limit on each side. Redisson's waiter is woken
// within its limit. The kit's waiter gets ErrBusy when its limit has passed.
func waitsThatEnd(s *shared) {
	const kind, name = neighbours.RLock, "limited"
	jane := s.java.Thread("jane")
	lease := s.goHolds(name, core.TTL(5*time.Minute))
	waits := jane.Begin("trylock", kind, name, time.Minute, 5*time.Minute)
	s.awaitListener(name, kind)
	s.release(lease)
	got, err := waits.Answer()
	s.javaIs(true, got == "yes", err)
	begin := time.Now()
	_, err = s.locks.Acquire(s.t.Context(), name, core.Wait(300*time.Millisecond))
	if took := time.Since(begin); !errors.Is(err, core.ErrBusy) || took < 300*time.Millisecond {
		s.t.Errorf("got %v after %v, want busy after the wait", err, took)
	}
	s.must(jane.Unlock(kind, name))
}

func (s *shared) watch(name string) <-chan struct{} {
	s.t.Helper()
	c := store.Claim{Key: name, Owner: "owner", Lease: "lease", Weight: store.All, Limit: store.All, TTL: time.Minute}
	woken, err := s.store.Watch(s.t.Context(), c)
	s.must(err)
	return woken
}

// awaitWoken waits until a message wakes the watch, and fails the test if none does. A
// watch does not poll, so only a message can wake it.
func (s *shared) awaitWoken(woken <-chan struct{}) {
	s.t.Helper()
	select {
	case _, ok := <-woken:
		if !ok {
			s.t.Error("the watch has lost its connection")
		}
	case <-time.After(limit):
		s.t.Errorf("no message within %v", limit)
	}
}

// messages shows that an unlock by Redisson wakes a watch of the kit by a message.
func messages(s *shared) {
	jane := s.java.Thread("jane")
	for _, kind := range []string{neighbours.RLock, neighbours.RFencedLock} {
		name := "watched-" + kind
		s.must(jane.Lock(kind, name, 5*time.Minute))
		woken := s.watch(name)
		s.must(jane.Unlock(kind, name))
		s.awaitWoken(woken)
	}
}

func (s *shared) holdOf(name string) string {
	s.t.Helper()
	state, err := s.store.Look(s.t.Context(), name)
	s.must(err)
	if len(state.Holds) != 1 {
		s.t.Fatalf("%s: got %+v, want one hold", name, state)
	}
	return state.Holds[0].ID
}

// revokedThere revokes a hold of Redisson for which both sides wait. Both waiters
// enter, one after the other.
func revokedThere(s *shared) {
	const name = "revoked"
	jane, joe := s.java.Thread("jane"), s.java.Thread("joe")
	s.must(jane.Lock(neighbours.RLock, name, 5*time.Minute))
	waits := joe.Begin("lock", neighbours.RLock, name, 5*time.Minute)
	s.awaitListener(name, neighbours.RLock)
	entered := make(chan *core.Lease, 1)
	go func() { entered <- s.goHolds(name, core.Wait(limit)) }()
	woken := s.watch(name)
	s.must(s.store.Revoke(s.t.Context(), name, s.holdOf(name), 0))
	s.awaitWoken(woken)
	s.refused(jane.Unlock(neighbours.RLock, name))
	joeLeaves := func() {
		_, err := waits.Answer()
		s.must(err)
		s.goIsKeptOut(name)
		s.must(joe.Unlock(neighbours.RLock, name))
	}
	select {
	case <-waits.Done():
		joeLeaves()
		s.release(<-entered)
	case lease := <-entered:
		s.release(lease)
		joeLeaves()
	}

	// This time the watchdog extends the hold, and the revoke keeps the key taken. The
	// watchdog stops, and each side enters after the time at which the hold would have
	// expired.
	s.must(jane.Lock(neighbours.RLock, name, 0))
	s.must(s.store.Revoke(s.t.Context(), name, s.holdOf(name), time.Millisecond))
	s.goIsKeptOut(name)
	s.refused(jane.Unlock(neighbours.RLock, name))
	s.release(s.goHolds(name))
	s.must(joe.Lock(neighbours.RLock, name, 0))
	s.must(joe.Unlock(neighbours.RLock, name))
}

// revokedWriter revokes a hold of a read-write lock. Redisson's waiters for such a lock
// listen to another channel. They try again at the time at which the hold would have
// expired.
func revokedWriter(s *shared) {
	const name = "revoked-writer"
	jane, joe := s.java.Thread("jane"), s.java.Thread("joe")
	s.must(jane.Lock(neighbours.RWriteLock, name, 10*time.Second))
	waits := joe.Begin("lock", neighbours.RWriteLock, name, 5*time.Minute)
	testserver.Eventually(s.t, limit, "Redisson waits", func() bool {
		n, err := listeners(s.t.Context(), s.asks, "redisson_rwlock:{"+name+"}")
		s.must(err)
		return n > 0
	})
	if n, err := listeners(s.t.Context(), s.asks, "redisson_lock__channel:{"+name+"}"); n > 0 || err != nil {
		s.t.Errorf("got %d listeners of an RLock, %v, want none", n, err)
	}
	woken := s.watch(name)
	s.must(s.store.Revoke(s.t.Context(), name, s.holdOf(name), 0))
	s.awaitWoken(woken)
	_, err := waits.Answer()
	s.must(err)
	s.refused(jane.Unlock(neighbours.RWriteLock, name))
	s.must(joe.Unlock(neighbours.RWriteLock, name))
}

// ownReaders expects a limit of Redisson: a reader or a writer enters while Redisson
// holds an RLock of that name. The reader's unlock deletes the RLock.
func ownReaders(s *shared) {
	jane, joe := s.java.Thread("jane"), s.java.Thread("joe")
	for kind, held := range map[string]bool{neighbours.RReadLock: false, neighbours.RWriteLock: true} {
		name := "own-" + kind
		s.must(jane.Lock(neighbours.RLock, name, 5*time.Minute))
		s.must(joe.Lock(kind, name, 5*time.Minute))
		s.must(joe.Unlock(kind, name))
		if got, err := jane.Held(neighbours.RLock, name); got != held || err != nil {
			s.t.Errorf("after the unlock of an %s the RLock is held: got %v, %v, want %v", kind, got, err, held)
		}
		_ = jane.Unlock(neighbours.RLock, name)
	}
}

// names shows that the Java expression in core/redisstore/README.md makes the same names
// from IDs as core.Key.
func names(s *shared) {
	jane := s.java.Thread("jane")
	for _, id := range []string{"42", "a:b", "100%", "a%3Ab", "{tenant}", "ü"} {
		name := core.Key("order", id)
		if got, err := jane.Key("order", id); got != name || err != nil {
			s.t.Errorf("%s: got %q, %v in Java, want %q", id, got, err, name)
			continue
		}
		s.must(jane.Lock(neighbours.RLock, name, 5*time.Minute))
		s.goIsKeptOut(name)
		s.must(jane.Unlock(neighbours.RLock, name))
		s.release(s.goHolds(name))
	}
	const expression = `.replace("%", "%25").replace(":", "%3A").replace("{", "%7B").replace("}", "%7D")`
	for _, file := range []string{"java/RedissonDriver.java", "../../redisstore/README.md"} {
		text, err := os.ReadFile(file)
		s.must(err)
		if !strings.Contains(string(text), expression) {
			s.t.Errorf("%s lacks %s", file, expression)
		}
	}
}

// overtakenFair expects a limit. An acquire of the kit overtakes a waiter of Redisson's
// fair lock whose process is paused. The waiter enters later.
func overtakenFair(s *shared) {
	s.t.Helper()
	const kind, name = neighbours.RFairLock, "overtaken"
	jane, joe := s.java.Thread("jane"), s.java.Thread("joe")
	lease := s.goHolds(name, core.TTL(5*time.Minute))
	waits := jane.Begin("lock", kind, name, 5*time.Minute)
	s.awaitListener(name, kind)
	s.java.Pause()
	s.release(lease)
	lease, err := s.locks.TryAcquire(s.t.Context(), name, core.TTL(5*time.Minute))
	if err != nil {
		s.t.Errorf("the waiter was not overtaken: %v", err)
	}
	s.java.Resume()
	got, err := joe.TryLockNow(kind, name)
	s.javaIs(false, got, err)
	select {
	case <-waits.Done():
		s.t.Error("the waiter entered beside the kit")
	default:
	}
	if lease != nil {
		s.release(lease)
	}
	_, err = waits.Answer()
	s.must(err)
	s.goIsKeptOut(name)
	s.must(jane.Unlock(kind, name))
}
