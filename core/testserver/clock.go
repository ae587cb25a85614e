package testserver

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Clock is the wall clock of the servers that are started with it. Their monotonic clock
// runs at the same rate, but is never set. The clocks of the test itself are unchanged. A
// Clock is safe for concurrent use.
type Clock struct {
	t    testing.TB
	file *os.File
	env  []string

	mu      sync.Mutex
	since   time.Time
	off     time.Duration
	rate    float64
	servers []*Redis
}

// NewClock returns a clock that begins at the real time and runs at rate times the
// normal speed. NewClock needs Linux, and a C compiler to build the library that
// changes the servers' time. Without them it skips or fails the test like RequireRedis.
func NewClock(t testing.TB, rate float64) *Clock {
	t.Helper()
	file, env := preload(t, tempDir(t), "TESTSERVER_CLOCK", "a server's clock cannot be set", clockLibrary)
	c := &Clock{t: t, file: file, env: env}
	c.since, c.rate = time.Now(), rate
	c.set(16, math.Float64bits(c.rate))
	c.set(8, 0)
	c.set(0, uint64(c.since.UnixNano()))
	return c
}

// set writes v to the file that clock.c reads, at the offset at.
func (c *Clock) set(at int64, v uint64) {
	c.t.Helper()
	if _, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, v), at); err != nil {
		c.t.Fatalf("testserver: clock: %v", err)
	}
}

// StartRedis starts a server with this clock, like the function StartRedis. It fails the
// test if the server does not follow the clock.
func (c *Clock) StartRedis(args ...string) *Redis {
	c.t.Helper()
	s := startRedis(c.t, &Redis{args: args, env: c.env})
	c.compare(func() string {
		at, _ := s.Do("TIME").([]any)
		if len(at) != 2 {
			c.t.Fatalf("testserver: clock: got %v from TIME", at)
		}
		return fmt.Sprint(at[0])
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers = append(c.servers, s)
	return s
}

// StartMariaDB starts a server with this clock, like the function StartMariaDB. It fails
// the test if the server does not follow the clock.
func (c *Clock) StartMariaDB(settings ...string) *MariaDB {
	c.t.Helper()
	s := startMariaDB(c.t, c.env, settings)
	c.compare(func() string { return s.Exec("SELECT UNIX_TIMESTAMP()")[0] })
	return s
}

// compare fails the test unless a server follows the clock to within ten seconds. seconds
// requests the server's time in seconds. Because a fast clock advances far during this
// request, compare reads the clock before and after it.
func (c *Clock) compare(seconds func() string) {
	c.t.Helper()
	before := time.Now().Add(c.Ahead())
	text := seconds()
	after := time.Now().Add(c.Ahead())
	n, err := strconv.ParseInt(text, 10, 64)
	if got := time.Unix(n, 0); err != nil || got.Before(before.Add(-10*time.Second)) || got.After(after.Add(10*time.Second)) {
		c.t.Fatalf("testserver: clock: the server's time is %v, %v, want %v to %v", got, err, before, after)
	}
}

// StartCluster starts servers with this clock, like the function StartCluster.
func (c *Clock) StartCluster(replicas bool, args ...string) *Cluster {
	c.t.Helper()
	return startCluster(c.t, c.env, replicas, args...)
}

// Step sets the clock forward, or back if d is negative, in one step. Then it waits, for
// at most Settled per server, until each server of Clock.StartRedis follows the new
// time. It does not wait for a server that does not answer. The wait is necessary
// because Valkey 9.1 reads its clock only once per millisecond.
func (c *Clock) Step(d time.Duration) {
	c.t.Helper()
	c.mu.Lock()
	c.off += d
	c.set(8, uint64(c.off))
	servers := c.servers
	c.mu.Unlock()
	for _, s := range servers {
		for since := time.Now(); time.Since(since) < Settled; time.Sleep(time.Millisecond) {
			off, err := c.offBy(s)
			if err != nil || off.Abs() < max(d.Abs()/2, 2*time.Second) {
				break
			}
		}
	}
}

// offBy returns the time by which a server is behind this clock. The result can be a
// second too large, because it ignores the microseconds of the server's time.
func (c *Clock) offBy(s *Redis) (time.Duration, error) {
	v, err := askRedis(s.Addr, 500*time.Millisecond, "TIME")
	if err != nil {
		return 0, err
	}
	at, _ := v.([]any)
	if len(at) != 2 {
		return 0, fmt.Errorf("the server says %v", v)
	}
	seconds, err := strconv.ParseInt(fmt.Sprint(at[0]), 10, 64)
	return time.Since(time.Unix(seconds, 0)) + c.Ahead(), err
}

// Ahead returns the time by which the clock is ahead of the real time.
func (c *Clock) Ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.off + time.Duration(float64(time.Since(c.since))*(c.rate-1))
}

//go:embed clock/clock.c
var clockSource []byte

var clockLibrary = sync.OnceValues(func() ([]byte, error) { return compile(clockSource) })
