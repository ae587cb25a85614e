// Package adapters_test puts one table of troubles before all adapters: a gin
// service, a gRPC service with a unary method and one with a stream, and an asynq
// server, each on real connections and with its locks in a real redis-server.
//
// What decides a trial stands outside of the kit: a resource that knows which run
// began when and compares tokens, the state in the server, what the client got,
// and what the handler saw of its context. A trial whose event did not happen
// fails, as it has shown nothing.
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

	"github.com/lockkit/lockkit/core/proof/tally"
)

func TestMain(m *testing.M) {
	if !tally.Wanted() {
		return
	}
	flag.Parse()
	// Most trials wait for another process, and so many fit on one processor.
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = flag.Set("test.parallel", "16")
	}
	gin.SetMode(gin.TestMode)
	gin.DefaultErrorWriter = io.Discard
	logging.Disable()                              // clients tell of every server that a test has ended
	slog.SetDefault(slog.New(slog.DiscardHandler)) // and lockers of each loss
	goleak.VerifyTestMain(m)
}

const (
	// patience is a deadline for what should not take long, on a busy machine.
	patience = 30 * time.Second
	// long is a TTL that no trial outlasts: what is free before was given back.
	long = 2 * time.Minute
	// short is the TTL where a lease is to be lost, which its holder is told a third
	// of it later at the latest. It must survive a busy machine until then.
	short = 10 * time.Second
)

// trials is how often each cell of the table is played.
func trials() int {
	if os.Getenv("LONG") == "1" {
		return 100
	}
	return 5
}

// within receives from ch.
func within[T any](t *testing.T, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
	return v
}
