package sim_test

import (
	"flag"
	"log/slog"
	"os"
	"runtime/debug"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core/proof/tally"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "play this seed only")
	seedsFlag = flag.Int("seeds", 0, "play so many seeds")
)

func TestMain(m *testing.M) {
	if !tally.Wanted() {
		return
	}
	flag.Parse()
	logging.Disable()                              // clients log each connection that breaks
	slog.SetDefault(slog.New(slog.DiscardHandler)) // lockers log each loss
	debug.SetGCPercent(400)                        // most memory in a run is short-lived
	goleak.VerifyTestMain(m)
}

// count returns the number of seeds to play: the number of -seeds, or else long with
// LONG=1, or else short. With the race detector it divides short and long by six,
// because a seed takes several times as long.
func count(short, long int) int {
	n := short
	switch {
	case *seedsFlag > 0:
		return *seedsFlag
	case os.Getenv("LONG") == "1":
		n = long
	}
	if raced {
		n /= 6
	}
	return n
}
