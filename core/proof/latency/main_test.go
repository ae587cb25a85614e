// Package latency_test runs the load of a payment service on each store while the
// store's server is slow. Messages are late, lost or delivered in bursts, and
// connections break. Each of several replicas of the service has its own connections,
// and users click several times at once.
//
// The judges compare the users' answers with the bank's ledger, which no fault affects.
// No order may be charged twice, and each charge must have its receipt. Each answer must
// be a receipt, a problem listed in httpmw/PROBLEMS.md, or the service's own problem of a
// lost lock. The tests measure times for core/OPERATIONS.md, and no test depends on them.
package latency_test

import (
	"flag"
	"io"
	"log"
	"log/slog"
	"os"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core/internal/offline"
	"github.com/lockkit/lockkit/core/proof/tally"
)

func TestMain(m *testing.M) {
	if !tally.Wanted() {
		return
	}
	flag.Parse()
	// Most runs wait for a message, so two processors can run 16 at once.
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = flag.Set("test.parallel", "16")
	}
	logging.Disable() // clients log each connection that breaks
	_ = mysql.SetLogger(log.New(io.Discard, "", 0))
	slog.SetDefault(slog.New(slog.DiscardHandler)) // and lockers log each loss
	offline.Resolve()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(offline.Dialing))
}

// long returns n with LONG=1, and otherwise a tenth of n, but at least 1.
func long(n int) int {
	if os.Getenv("LONG") == "1" {
		return n
	}
	return max(1, n/10)
}
