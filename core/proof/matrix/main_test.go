package matrix_test

import (
	"flag"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core/internal/offline"
	"github.com/lockkit/lockkit/core/proof/tally"
)

// ttl is the length of all leases: so long that one attempt of several can be
// slow on a busy machine.
const ttl = 9 * time.Second

// patience bounds what has to happen some time.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if !tally.Wanted() {
		return
	}
	flag.Parse()
	// Trials wait most of the time, and so many fit on one processor.
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = flag.Set("test.parallel", "40")
	}
	logging.Disable()                              // clients tell of every connection that breaks
	slog.SetDefault(slog.New(slog.DiscardHandler)) // and lockers of each loss
	offline.Resolve()
	goleak.VerifyTestMain(m)
}

// trials is how often each cell is played.
func trials() int {
	if os.Getenv("LONG") == "1" {
		return 90
	}
	return 3
}
