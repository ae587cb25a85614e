// Package hazards_test checks the behavior of the kit as a whole when something fails.
// Most tests use the engine of core over redisstore. They run a real redis-server, which
// they freeze, empty, fill or cut off. If a test stops or kills a holder, the holder is a
// separate process. core/PROOF.md lists the hazards by number.
//
// The tests judge by evidence from outside of the kit: one monotonic clock for all
// processes, the state in the server, the commands that the server received, and a
// register that compares tokens. A scene fails if its faults had no effect, because it
// has then shown nothing.
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
	// Most scenes wait for a lease to end, so two processors can run ten of them at
	// once.
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = flag.Set("test.parallel", "10")
	}
	logging.Disable()                              // clients log each stopped server
	slog.SetDefault(slog.New(slog.DiscardHandler)) // and lockers log each loss
	offline.Resolve()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(offline.Dialing))
}

// mono returns the time of the monotonic clock in nanoseconds. All processes of a machine
// share this clock.
func mono() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

// count returns n with LONG=1, else a tenth of n, but at least ten.
func count(n int) int {
	if os.Getenv("LONG") == "1" {
		return n
	}
	return max(10, n/10)
}

func trials(t *testing.T, n int, scene func(t *testing.T, n int)) {
	t.Helper()
	for i := 1; i <= n; i++ {
		t.Run("trial "+strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			scene(t, i)
		})
	}
}

func oneByOne(t *testing.T, n int, scene func(t *testing.T, n int)) {
	t.Helper()
	for i := 1; i <= n; i++ {
		t.Run("trial "+strconv.Itoa(i), func(t *testing.T) { scene(t, i) })
	}
}

// bites counts how often a fault took effect. After all trials, the test fails if the
// count is less than least.
type bites struct{ n atomic.Int64 }

func newBites(t *testing.T, what string, least int) *bites {
	b := &bites{}
	t.Cleanup(func() {
		tally.Note(t, tally.Facts{Part: "processes", Runs: 1, Faults: map[string]int{what: int(b.n.Load())}})
		if n := b.n.Load(); !t.Failed() && n < int64(least) {
			t.Errorf("test setup: %d times %s, want at least %d", n, what, least)
		}
	})
	return b
}

func (b *bites) add() { b.n.Add(1) }

func ms(from, to int64) time.Duration { return time.Duration(to - from).Round(time.Millisecond) }
