package hazards_test

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

// TestTurns covers hazard 41 at the stores that cannot wake waiters, where the waiters of
// other processes poll. Four processes, with 16 goroutines each, share one key.
func TestTurns(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	const settings = "?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	for name, on := range map[string]func(t *testing.T) plan{
		"plain keys": func(t *testing.T) plan {
			return plan{Addr: testserver.StartRedis(t).Addr, Plain: true}
		},
		"Redlock on plain keys": func(t *testing.T) plan {
			p := plan{Kind: "redlock", Plain: true}
			for range 3 {
				p.Addrs = append(p.Addrs, testserver.StartRedis(t).Addr)
			}
			return p
		},
		"MariaDB": func(t *testing.T) plan {
			return plan{Kind: "mysql", Addrs: []string{testserver.StartMariaDB(t).NewDatabase(t).DSN()}}
		},
		"SQLite": func(t *testing.T) plan {
			return plan{Kind: "sqlite", Addrs: []string{"file:" + filepath.Join(t.TempDir(), "locks.db") + settings}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sharedKey(t, on(t))
		})
	}
}

// sharedKey counts the leases of each process in windows of 700 leases, which take
// about two seconds on a quiet machine. In the median window, the busiest process must
// have at most twice the leases of the idlest. Five windows decide. If the ratio in the
// median window is greater than two, the test adds windows, up to eleven. A busy
// machine stops single processes.
func sharedKey(t *testing.T, on plan) {
	const key, processes, each, window, least, most = "shared", 4, 16, 700, 5, 11
	oracle := newOracle(t, least*window)
	children, loops := make([]*child, processes), make([]int, processes)
	for i := range children {
		on.Name = strconv.Itoa(i)
		children[i] = newChild(t, on)
		loops[i] = children[i].send(order{Op: "loop", Key: key, TTL: 20 * time.Second, Hold: time.Millisecond, N: each})
	}
	for i, c := range children {
		c.await(loops[i], "looping")
	}
	from := mono()
	var windows [][]int // numbers of leases by process
	var ratios []float64
	testserver.Eventually(t, 5*patience, "enough windows are complete", func() bool {
		time.Sleep(200 * time.Millisecond)
		windows = windowsOf(children, from, window)
		ratios = ratios[:0]
		for _, leases := range windows {
			ratios = append(ratios, float64(slices.Max(leases))/float64(max(1, slices.Min(leases))))
		}
		slices.Sort(ratios)
		return len(ratios) >= most || len(ratios) >= least && ratios[len(ratios)/2] <= 2
	})
	t.Logf("leases by process: %v; busiest to idlest: %.2f", windows, ratios)
	if got := ratios[len(ratios)/2]; got > 2 {
		t.Errorf("got %.2f times the leases of the idlest process for the busiest, want at most 2", got)
	}
	for i, c := range children {
		c.send(order{Op: "stop"})
		c.await(loops[i], "looped", "failed")
		for _, r := range c.all("failed") {
			t.Errorf("%s: %s", c.name, r.Text)
		}
		for _, r := range c.all("hold") {
			if r.Span.Token == 0 {
				r.Span.Token = uint64(r.Span.From) // plain keys have no tokens
			}
			oracle.add(r.Span)
		}
	}
}

// windowsOf divides the leases since the time from into windows of size leases each. It
// returns the number of leases of each process in each window. It omits the first
// window, in which the processes learn of each other.
func windowsOf(children []*child, from int64, size int) (windows [][]int) {
	type lease struct {
		at      int64
		process int
	}
	var all []lease
	for i, c := range children {
		for _, r := range c.all("hold") {
			if r.Span.From >= from {
				all = append(all, lease{r.Span.From, i})
			}
		}
	}
	slices.SortFunc(all, func(a, b lease) int { return cmp.Compare(a.at, b.at) })
	for at := size; at+size <= len(all); at += size {
		leases := make([]int, len(children))
		for _, l := range all[at : at+size] {
			leases[l.process]++
		}
		windows = append(windows, leases)
	}
	return windows
}
