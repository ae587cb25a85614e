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
	logging.Disable()                              // clients tell of every connection that breaks
	slog.SetDefault(slog.New(slog.DiscardHandler)) // and lockers of each loss
	debug.SetGCPercent(400)                        // little lives long in a run
	goleak.VerifyTestMain(m)
}

// count is how many seeds to play: those of a long run with LONG=1. With the race
// detector a seed takes several times as long.
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
