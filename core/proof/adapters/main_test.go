// Package adapters_test runs one table of faults on four services: a gin service, a
// gRPC service with a unary method and one with a stream, and an asynq server. Each has
// real connections, and its locks are in a real redis-server.
//
// Evidence from outside of the kit decides each trial: a resource that records when each
// run began and compares tokens, the state in the server, the client's response, and the
// handler's context. A trial fails if its event did not happen, because it has then
// shown nothing.
package adapters_test

import (
	"flag"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
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
	// Most trials wait for another process, so one processor can run 16 at once.
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = flag.Set("test.parallel", "16")
	}
	gin.SetMode(gin.TestMode)
	gin.DefaultErrorWriter = io.Discard
	logging.Disable()                              // clients log each stopped server
	slog.SetDefault(slog.New(slog.DiscardHandler)) // and lockers log each loss
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(offline.Dialing))
}

const (
	// patience limits how long a test waits for an event on a busy machine.
	patience = 30 * time.Second
	// long is a TTL that no trial outlasts. A key that becomes free within this time was
	// released.
	long = 2 * time.Minute
	// short is the TTL in trials in which a lease must be lost. The holder is notified
	// within a third of the TTL. Even on a busy machine, a lease must not be lost before
	// the fault.
	short = 10 * time.Second
)

// trials returns the number of times that each cell of the table is played.
func trials() int {
	if os.Getenv("LONG") == "1" {
		return 100
	}
	return 5
}

func within[T any](t *testing.T, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
	return v
}
