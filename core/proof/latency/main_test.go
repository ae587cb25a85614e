// Package latency_test puts the load of a payment service on each store while its server is
// slow: messages are late, lost or come in bursts, and connections break. Several replicas
// of the service have connections of their own, and users click several times at once.
//
// What decides a run is the ledger of the bank, which no fault reaches. No order is charged
// twice, each charge has its receipt, and each answer is of a kind that httpmw/PROBLEMS.md
// has. Times are measured for core/OPERATIONS.md and decide nothing.
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
	// Most runs wait for a message, and so many fit on two processors.
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = flag.Set("test.parallel", "16")
	}
	logging.Disable() // clients log each connection that breaks
	_ = mysql.SetLogger(log.New(io.Discard, "", 0))
	slog.SetDefault(slog.New(slog.DiscardHandler)) // and lockers each loss
	offline.Resolve()
	goleak.VerifyTestMain(m)
}

// long returns n in a long run (LONG=1), and a tenth of it otherwise.
func long(n int) int {
	if os.Getenv("LONG") == "1" {
		return n
	}
	return max(1, n/10)
}
