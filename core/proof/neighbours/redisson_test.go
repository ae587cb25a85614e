package neighbours_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/neighbours"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestRedisson shows that the driver of Redisson carries out its commands.
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
	s := newSite(t, 1)
	r := neighbours.StartRedisson(t, version, s.addrs[0])
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

	check(jane.Lock(kind, "twice", minute))
	yes(jane.TryLock(kind, "twice", 0, minute))
	no(joe.TryLock(kind, "twice", 0, minute))
	owner, err := jane.Owner()
	check(err)
	if n := s.clients[0].HGet(t.Context(), "twice", owner).Val(); n != "2" {
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
	second, err := joe.LockToken("fenced", minute)
	check(err)
	if second <= first {
		t.Errorf("got token %d after %d", second, first)
	}

	check(jane.Lock(neighbours.RReadLock, "both", minute))
	check(joe.Lock(neighbours.RReadLock, "both", minute))
	no(r.Thread("jim").TryLockNow(neighbours.RWriteLock, "both"))
	check(jane.Lock(neighbours.RFairLock, "fair", minute))
	no(joe.TryLockNow(neighbours.RFairLock, "fair"))

	besidePlainKeys(t, s, version, jane)

	dead := joe.Begin("lock", neighbours.RFairLock, "fair", minute)
	r.Kill()
	if _, err := dead.Answer(); err == nil {
		t.Error("got an answer of a dead driver")
	}
}

// TestRedissonCluster shows that the driver of Redisson can take locks in a Cluster.
func TestRedissonCluster(t *testing.T) {
	t.Parallel()
	cluster := testserver.StartCluster(t, false)
	jane := neighbours.StartRedisson(t, neighbours.Redisson4, cluster.Addrs()...).Thread("jane")
	for _, name := range []string{"a", "b", "c", "d"} {
		if err := errors.Join(jane.Lock(neighbours.RLock, name, time.Minute), jane.Unlock(neighbours.RLock, name)); err != nil {
			t.Error(err)
		}
	}
}

// besidePlainKeys shows that a lock of Redisson and a plain key of the kit exclude each
// other, by an error on either side.
func besidePlainKeys(t *testing.T, s *site, version string, jane *neighbours.Thread) {
	t.Helper()
	locks := s.locks(t, "")
	if err := jane.Lock(neighbours.RLock, "theirs", long); err != nil {
		t.Fatal(err)
	}
	if _, err := locks.TryAcquire(t.Context(), "theirs"); !errors.Is(err, core.ErrUnavailable) {
		t.Errorf("got %v beside a hash, want unavailable", err)
	}
	if err := jane.Unlock(neighbours.RLock, "theirs"); err != nil {
		t.Errorf("unlock: %v", err)
	}
	lease, err := locks.TryAcquire(t.Context(), "ours")
	if err != nil {
		t.Fatal(err)
	}
	var thrown *neighbours.Error
	if _, err := jane.TryLock(neighbours.RLock, "ours", 0, long); !errors.As(err, &thrown) {
		t.Errorf("got %v beside a string, want an exception", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
	n := neighbour{row: "Redisson %s, `RLock`", pkg: version + " org.redisson:redisson:"}
	wantRow(t, n.title(t), "none", "each side gets an error for the other side's lock: Redisson's lock is a hash, and the kit's is a string")
	tally.Note(t, tally.Facts{Part: "neighbours", Runs: 1, Violations: map[string]int{"overlaps": 0}})
}
