// Package hazards_test shows what the kit as a whole, the engine of core over
// redisstore, does when things go wrong: against a real redis-server that is
// frozen, emptied, full or cut off, and with holders in processes of their own
// that are stopped and killed. core/PROOF.md lists the hazards by number.
//
// What decides a test stands outside of the kit: one monotonic clock for all
// processes, the state in the server, the commands that it received, and a
// register that compares tokens. A scene whose faults did not bite fails, as it
// has shown nothing.
package hazards_test

import (
	"flag"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/lockkit/lockkit/core/internal/offline"
	"github.com/lockkit/lockkit/core/proof/tally"
)

func TestMain(m *testing.M) {
	if plan := os.Getenv(workerEnv); plan != "" {
		os.Exit(work(plan))
	}
	if !tally.Wanted() {
		return
	}
	flag.Parse()
	// Most scenes wait for a lease to end, and so many fit on two processors.
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = flag.Set("test.parallel", "10")
	}
	logging.Disable()                              // clients tell of every server that a test has ended
	slog.SetDefault(slog.New(slog.DiscardHandler)) // and lockers of each loss
	offline.Resolve()
	goleak.VerifyTestMain(m)
}

// mono is the monotonic clock in nanoseconds. It is one clock for all processes
// of a machine.
func mono() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

// count is n with LONG=1, else a tenth of it, but at least ten.
func count(n int) int {
	if os.Getenv("LONG") == "1" {
		return n
	}
	return max(10, n/10)
}

// trials plays a scene n times, several at a time.
func trials(t *testing.T, n int, scene func(t *testing.T, n int)) {
	t.Helper()
	for i := 1; i <= n; i++ {
		t.Run("trial "+strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			scene(t, i)
		})
	}
}

// bites counts how often a fault did what it was meant to do. When all trials
// are over, fewer than least fail the test.
type bites struct{ n atomic.Int64 }

func newBites(t *testing.T, what string, least int) *bites {
	b := &bites{}
	t.Cleanup(func() {
		tally.Note(t, tally.Facts{Part: "processes", Runs: 1, Faults: map[string]int{what: int(b.n.Load())}})
		if n := b.n.Load(); !t.Failed() && n < int64(least) {
			t.Errorf("vacuous: %d times %s, want at least %d", n, what, least)
		}
	})
	return b
}

func (b *bites) add() { b.n.Add(1) }

// ms is a duration of monotonic clock readings.
func ms(from, to int64) time.Duration { return time.Duration(to - from).Round(time.Millisecond) }
