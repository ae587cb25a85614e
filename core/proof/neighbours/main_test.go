package neighbours_test

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core/proof/tally"
)

// scratch is a directory for the programs that the tests build.
var scratch string

func TestMain(m *testing.M) {
	if addrs := os.Getenv(replicaOf); addrs != "" {
		serveReplica(strings.Split(addrs, ","))
		return
	}
	if addr := os.Getenv(holderOf); addr != "" {
		serveHolder(addr)
		return
	}
	if !tally.Wanted() {
		return
	}
	// Most tests wait for a lock to expire, so two processors can run 8 tests at once.
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = flag.Set("test.parallel", "8")
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // lockers log each loss
	var err error
	if scratch, err = os.MkdirTemp("", "neighbours"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}
