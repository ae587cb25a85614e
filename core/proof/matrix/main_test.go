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

// ttl is the TTL of all leases. It is long enough for one of several attempts to be slow
// on a busy machine.
const ttl = 9 * time.Second

// patience limits how long a test waits for an event.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if !tally.Wanted() {
		return
	}
	flag.Parse()
	// Trials mostly wait, so one processor can run 40 of them at once.
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = flag.Set("test.parallel", "40")
	}
	logging.Disable()                              // clients log each connection that breaks
	slog.SetDefault(slog.New(slog.DiscardHandler)) // and lockers log each loss
	offline.Resolve()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(offline.Dialing))
}

// trials returns the number of times that each cell is played.
func trials() int {
	if os.Getenv("LONG") == "1" {
		return 90
	}
	return 3
}
