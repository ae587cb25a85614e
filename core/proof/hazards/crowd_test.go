package hazards_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestCrowd checks many waiters for one key, and many held keys.
func TestCrowd(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	// hazard 41
	t.Run("waiters of 8 processes", fairProcesses)
	t.Run("goroutines of one process", fairGoroutines)
	t.Run("requests of 200 waiters", quietWaiters)
	t.Run("hold 10000 locks", manyLocks)
}

func fairProcesses(t *testing.T) {
	t.Parallel()
	const key, processes, each = "crowd", 8, 8
	server := testserver.StartRedis(t)
	asks := inspect(t, server)
	oracle := newOracle(t, processes*each*10)
	gate := acquire(t, newLocker(t, server.Addr), key)
	children, loops := make([]*child, processes), make([]int, processes)
	for i := range children {
		children[i] = newChild(t, plan{Addr: server.Addr, Name: strconv.Itoa(i)})
		loops[i] = children[i].send(order{Op: "loop", Key: key, TTL: 20 * time.Second, Fair: true, N: each})
	}
	testserver.Eventually(t, patience, "a waiter of each process is in line", func() bool { return asks.waiters(key) == processes })
	release(t, gate)
	served := func() (least, most int) {
		least = 1 << 30
		for _, c := range children {
			by := make(map[string]int)
			for _, r := range c.all("hold") {
				by[r.Span.Who]++
			}
			for i := range each {
				n := by[c.name+"/"+strconv.Itoa(i)]
				least, most = min(least, n), max(most, n)
			}
		}
		return least, most
	}
	testserver.Eventually(t, patience, "each was served ten times", func() bool {
		time.Sleep(20 * time.Millisecond)
		least, _ := served()
		return least >= count(100)
	})
	least, most := served()
	if most > 2*least {
		t.Errorf("one was served %d times, another one %d times", least, most)
	}
	for i, c := range children {
		c.send(order{Op: "stop"})
		c.await(loops[i], "looped", "failed")
		for _, r := range c.all("failed") {
			t.Errorf("%s: %s", c.name, r.Text)
		}
		for _, r := range c.all("hold") {
			oracle.add(r.Span)
		}
	}
}

func fairGoroutines(t *testing.T) {
	t.Parallel()
	const key, goroutines, rounds = "turns", 64, 10
	server := testserver.StartRedis(t)
	l := newLocker(t, server.Addr)
	var mu sync.Mutex
	var order []int  // the goroutines in the order of service; the tested lock guards it too
	var alone []bool // by turn: whether less than a quarter of the goroutines waited at its release
	var waiting atomic.Int32
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for range rounds {
				waiting.Add(1)
				lease, err := l.Acquire(context.Background(), key, core.Wait(patience))
				waiting.Add(-1)
				if err != nil {
					t.Errorf("goroutine %d: %v", i, err)
					return
				}
				mu.Lock()
				order = append(order, i)
				// Other goroutines may still wait for the answers to their releases,
				// and then do not count as waiting.
				alone = append(alone, waiting.Load() < goroutines/4)
				mu.Unlock()
				if err := lease.Release(context.Background()); err != nil {
					t.Errorf("goroutine %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	times, contended := make([]int, goroutines), make([]int, goroutines)
	started, last := 0, -1
	for at, i := range order {
		if times[i]++; times[i] == 1 {
			started++
		}
		if !alone[at] {
			contended[i]++
		}
		// When every goroutine has had a turn, and before a goroutine has had all its
		// turns, all other goroutines wait or are about to wait.
		if started == goroutines && i == last && !alone[at-1] {
			t.Errorf("goroutine %d was served twice in a row, at %d", i, at)
		}
		last = i
		if times[i] < rounds {
			continue
		}
		for j, n := range times {
			if n < contended[i]/2 {
				t.Errorf("goroutine %d was served %d times when %d was done, %d times while others waited", j, n, i, contended[i])
			}
		}
		return
	}
}

func quietWaiters(t *testing.T) {
	t.Parallel()
	const key, processes, each, seconds = "quiet", 2, 100, 6
	s := newSite(t)
	asks := inspect(t, s.server)
	holder := acquire(t, newLocker(t, s.server.Addr), key, core.TTL(5*time.Minute))
	var wg sync.WaitGroup
	for range processes {
		l := newLocker(t, s.server.Addr)
		for range each {
			wg.Go(func() {
				lease, err := l.Acquire(context.Background(), key, core.Wait(patience))
				if err != nil {
					t.Errorf("a waiter: %v", err)
					return
				}
				release(t, lease)
			})
		}
	}
	testserver.Eventually(t, patience, "a waiter of each process is in line", func() bool { return asks.waiters(key) == processes })
	// A waiter's first requests are not counted: it asks, opens a watch and asks again.
	testserver.Eventually(t, patience, "each of them polls", func() bool {
		asked := make(map[string]int)
		for _, c := range s.tap.allCalls() {
			if name, of, lease := c.script(); name == "acquire" && of == stored(key) {
				asked[lease]++
			}
		}
		polling := 0
		for _, n := range asked {
			if n >= 3 {
				polling++
			}
		}
		return polling == processes
	})
	from, asked, others := mono(), 0, 0
	time.Sleep(seconds * time.Second)
	var until int64
	testserver.Eventually(t, patience, "they continue to poll", func() bool {
		until, asked, others = mono(), 0, 0
		for _, c := range s.tap.allCalls() {
			if c.At < from || c.At > until {
				continue
			}
			if name, _, _ := c.script(); name == "acquire" {
				asked++
			} else {
				others++
			}
		}
		return asked >= processes*(seconds-2)/2
	})
	most := processes * (int(time.Duration(until-from)/time.Second) + 1)
	if asked > most || others > 0 {
		t.Errorf("%d waiters asked %d times in %v, want at most %d, and made %d other calls", processes*each, asked, ms(from, until), most, others)
	}
	release(t, holder)
	wg.Wait()
}

func manyLocks(t *testing.T) {
	t.Parallel()
	const locks, ttl = 10_000, 12 * time.Second
	server := testserver.StartRedis(t)
	asks := inspect(t, server)
	c := newChild(t, plan{Addr: server.Addr})
	id := c.send(order{Op: "crowd", Key: "many", N: locks, TTL: ttl})
	if held := c.await(id, "held"); held.Count["refused"] > 0 {
		t.Fatalf("%d of %d locks were refused", held.Count["refused"], locks)
	}
	before := asks.stats()
	time.Sleep(5 * ttl / 2)
	after := asks.stats()
	if n := asks.DBSize(t.Context()).Val(); n != locks {
		t.Errorf("the server has %d keys, want %d", n, locks)
	}
	c.send(order{Op: "stop"})
	got := c.await(id, "crowd").Count
	t.Logf("%d locks: %v; the server read %d times for %d calls", locks, got,
		after["total_reads_processed"]-before["total_reads_processed"], after["evalsha"]-before["evalsha"])
	if got["lost"] > 0 {
		t.Errorf("%d leases were lost", got["lost"])
	}
	if got["goroutines"] > 200 {
		t.Errorf("there were up to %d goroutines", got["goroutines"])
	}
	if got["claims"] < 5*locks {
		t.Errorf("test setup: %d extensions of %d leases", got["claims"], locks)
	}
	if got["claims"] < 50*got["calls"] {
		t.Errorf("%d extensions took %d calls", got["claims"], got["calls"])
	}
	reads, calls := after["total_reads_processed"]-before["total_reads_processed"], after["evalsha"]-before["evalsha"]
	if calls < 5*locks || reads > calls/10 {
		t.Errorf("the server read %d times for %d calls", reads, calls)
	}
}

// stats returns the server's counters. The number of calls of a command has the
// command's name as its key.
func (i inspector) stats() map[string]int {
	i.t.Helper()
	stats := make(map[string]int)
	for _, section := range []string{"stats", "commandstats", "clients"} {
		for line := range strings.Lines(i.Info(context.Background(), section).Val()) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			var n int
			if command, ok := strings.CutPrefix(name, "cmdstat_"); ok {
				if _, err := fmt.Sscanf(value, "calls=%d,", &n); err == nil {
					stats[command] = n
				}
			} else if n, err := strconv.Atoi(value); err == nil {
				stats[name] = n
			}
		}
	}
	return stats
}
