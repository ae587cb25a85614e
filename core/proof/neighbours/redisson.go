package neighbours

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

// The constants name the tested versions of Redisson. versions.txt has their numbers.
const (
	Redisson3 = "redisson-3"
	Redisson4 = "redisson-4"
)

// The constants name the kinds of Redisson's locks.
const (
	RLock       = "RLock"
	RFairLock   = "RFairLock"
	RFencedLock = "RFencedLock"
	RSpinLock   = "RSpinLock"
	RReadLock   = "RReadLock"  // of a read-write lock
	RWriteLock  = "RWriteLock" // of a read-write lock
)

// RedissonWatchdog is Redisson's lockWatchdogTimeout: the TTL of a lock without a lease
// time. The watchdog extends such a lock every third of this time. With 2 s, a JVM that
// stalls for 1.3 s on a busy machine would lose locks.
const RedissonWatchdog = 5 * time.Second

// SentinelWatchdog is the lockWatchdogTimeout on Sentinel: Redisson's default. A
// failover can take longer than RedissonWatchdog.
const SentinelWatchdog = 30 * time.Second

var redissons = map[string]*kit{
	Redisson3: javaKit(Redisson3, "RedissonDriver"),
	Redisson4: javaKit(Redisson4, "RedissonDriver"),
}

// Redisson runs the real Redisson in a JVM. It is safe for concurrent use.
type Redisson struct{ *Driver }

// StartRedisson starts a JVM with Redisson. If addrs has one address, Redisson is a
// client of the server there. If it has several, Redisson is a client of the Cluster
// whose nodes are there. version is Redisson3 or Redisson4.
func StartRedisson(t testing.TB, version string, addrs ...string) *Redisson {
	t.Helper()
	k := redissons[version]
	if k == nil || len(addrs) == 0 {
		t.Fatalf("neighbours: got version %q and %d addresses, want a constant and at least one", version, len(addrs))
	}
	watchdog := RedissonWatchdog
	if addrs[0] == "sentinel" {
		watchdog = SentinelWatchdog
	}
	args := append([]string{strconv.FormatInt(watchdog.Milliseconds(), 10)}, addrs...)
	return &Redisson{startJava(t, k, "RedissonDriver", args...)}
}

// StartRedissonUnsharded starts a JVM with Redisson as client of the Cluster whose
// nodes are at addrs. This Redisson subscribes only to messages that are not sharded
// (ShardedSubscriptionMode.OFF).
func StartRedissonUnsharded(t testing.TB, version string, addrs ...string) *Redisson {
	t.Helper()
	return StartRedisson(t, version, append([]string{"unsharded"}, addrs...)...)
}

// StartRedissonOnSentinel starts a JVM with Redisson as client of the master that the
// sentinels name. Its watchdog time is SentinelWatchdog.
func StartRedissonOnSentinel(t testing.TB, version string, s *testserver.Sentinel) *Redisson {
	t.Helper()
	return StartRedisson(t, version, append([]string{"sentinel", testserver.SentinelName}, s.SentinelAddrs()...)...)
}

// Thread is a thread of the JVM. A lock of Redisson belongs to a thread. So a thread
// can lock twice, and two threads exclude each other.
type Thread struct {
	redisson *Redisson
	name     string
}

// Thread returns the thread with this name, which must not contain blanks. The JVM
// starts the thread at its first command.
func (r *Redisson) Thread(name string) *Thread { return &Thread{r, name} }

// Begin sends a command and returns at once: "lock" with a kind, a name and a lease,
// "trylock" with a kind, a name, a time to wait and a lease, or "unlock" with a kind
// and a name.
func (th *Thread) Begin(verb string, args ...any) *Call {
	th.redisson.t.Helper()
	return th.redisson.Begin(th.name, verb, args...)
}

// Lock waits for the lock, and takes it for lease. If lease is 0, the watchdog extends
// the lock until Unlock. An error of Redisson is an *Error whose Class is the simple
// name of the Java class.
func (th *Thread) Lock(kind, name string, lease time.Duration) error {
	th.redisson.t.Helper()
	_, err := th.Begin("lock", kind, name, lease).Answer()
	return err
}

// TryLock waits for the lock for at most wait, and reports whether the thread has the
// lock.
func (th *Thread) TryLock(kind, name string, wait, lease time.Duration) (bool, error) {
	th.redisson.t.Helper()
	return th.ask("trylock", kind, name, wait, lease)
}

// TryLockNow takes the lock if it is free, and reports whether the thread has it. It
// calls tryLock without arguments, so the watchdog extends the lock.
func (th *Thread) TryLockNow(kind, name string) (bool, error) {
	th.redisson.t.Helper()
	return th.ask("trylocknow", kind, name)
}

// Unlock unlocks once. If the thread does not hold the lock, the Class of the error is
// IllegalMonitorStateException.
func (th *Thread) Unlock(kind, name string) error {
	th.redisson.t.Helper()
	_, err := th.Begin("unlock", kind, name).Answer()
	return err
}

// ForceUnlock deletes the lock of any holder, and reports whether the lock existed.
func (th *Thread) ForceUnlock(kind, name string) (bool, error) {
	th.redisson.t.Helper()
	return th.ask("forceunlock", kind, name)
}

// Held asks the server, and reports whether the thread holds the lock.
func (th *Thread) Held(kind, name string) (bool, error) {
	th.redisson.t.Helper()
	return th.ask("held", kind, name)
}

// Locked reports whether anybody holds the lock.
func (th *Thread) Locked(kind, name string) (bool, error) {
	th.redisson.t.Helper()
	return th.ask("locked", kind, name)
}

// Holds returns the number of times that the thread must unlock.
func (th *Thread) Holds(kind, name string) (int, error) {
	th.redisson.t.Helper()
	n, err := th.number("holds", kind, name)
	return int(n), err
}

// LockToken takes an RFencedLock, like Lock, and returns the token.
func (th *Thread) LockToken(name string, lease time.Duration) (int64, error) {
	th.redisson.t.Helper()
	return th.number("locktoken", RFencedLock, name, lease)
}

// Token returns the last token of an RFencedLock.
func (th *Thread) Token(name string) (int64, error) {
	th.redisson.t.Helper()
	return th.number("token", RFencedLock, name)
}

// Key returns the name that the Java code makes of a static name and an id, like
// core.Key(name, id). Neither may contain blanks.
func (th *Thread) Key(name, id string) (string, error) {
	th.redisson.t.Helper()
	return th.Begin("key", name, id).Answer()
}

// Owner returns the name of the field that counts the thread's holds in the hash of a
// lock.
func (th *Thread) Owner() (string, error) {
	th.redisson.t.Helper()
	return th.Begin("owner").Answer()
}

func (th *Thread) ask(verb string, args ...any) (bool, error) {
	th.redisson.t.Helper()
	text, err := th.Begin(verb, args...).Answer()
	return text == "yes", err
}

func (th *Thread) number(verb string, args ...any) (int64, error) {
	th.redisson.t.Helper()
	text, err := th.Begin(verb, args...).Answer()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("neighbours: %s: %w", verb, err)
	}
	return n, nil
}
