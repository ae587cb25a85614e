package neighbours_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/proof/neighbours"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestRedisson shows that the driver of Redisson does what it is asked to.
func TestRedisson(t *testing.T) {
	t.Parallel()
	for _, version := range []string{neighbours.Redisson3, neighbours.Redisson4} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			testRedisson(t, version)
		})
	}
}

func testRedisson(t *testing.T, version string) {
	server := testserver.StartRedis(t)
	asks := testclient.Redis(t, server.Addr)
	r := neighbours.StartRedisson(t, version, server.Addr)
	jane, joe := r.Thread("jane"), r.Thread("joe")
	no := func(ok bool, err error) {
		t.Helper()
		if ok || err != nil {
			t.Errorf("got %v, %v, want false", ok, err)
		}
	}
	yes := func(ok bool, err error) {
		t.Helper()
		if !ok || err != nil {
			t.Errorf("got %v, %v, want true", ok, err)
		}
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const kind, minute = neighbours.RLock, time.Minute

	check(jane.Lock(kind, "twice", 0))
	yes(jane.TryLockNow(kind, "twice"))
	no(joe.TryLock(kind, "twice", 0, minute))
	owner, err := jane.Owner()
	check(err)
	if n := asks.HGet(t.Context(), "twice", owner).Val(); n != "2" {
		t.Errorf("got count %q, want 2", n)
	}
	waits := joe.Begin("lock", kind, "twice", minute)
	check(errors.Join(jane.Unlock(kind, "twice"), jane.Unlock(kind, "twice")))
	_, err = waits.Answer()
	check(err)
	var thrown *neighbours.Error
	if err := jane.Unlock(kind, "twice"); !errors.As(err, &thrown) || thrown.Class != "IllegalMonitorStateException" {
		t.Errorf("got %v, want IllegalMonitorStateException", err)
	}
	yes(jane.ForceUnlock(kind, "twice"))

	first, err := jane.LockToken("fenced", minute)
	check(err)
	check(jane.Unlock(neighbours.RFencedLock, "fenced"))
	second, err := joe.LockToken("fenced", 0)
	check(err)
	if second <= first {
		t.Errorf("got token %d after %d", second, first)
	}

	check(jane.Lock(neighbours.RReadLock, "both", minute))
	check(joe.Lock(neighbours.RReadLock, "both", minute))
	no(r.Thread("jim").TryLockNow(neighbours.RWriteLock, "both"))
	check(jane.Lock(neighbours.RFairLock, "fair", minute))
	no(joe.TryLockNow(neighbours.RFairLock, "fair"))

	dead := joe.Begin("lock", neighbours.RFairLock, "fair", minute)
	r.Kill()
	if _, err := dead.Answer(); err == nil {
		t.Error("got an answer of a dead driver")
	}
}
