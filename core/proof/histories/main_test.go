// Package histories_test records the operations of many processes on a few keys of one
// Redis. Meanwhile a nemesis kills, stops, freezes and cuts off the processes and the
// server. Judges outside of the kit check the record.
//
// Three judges check each history. The interval oracle uses the machine's one monotonic
// clock. The intervals in which processes relied on a key must be disjoint, and tokens
// must grow in the order of real time. The register is a resource that refuses older
// tokens. It must not accept a holder's write after a write of the holder's successor.
// Porcupine checks that the history of each key is a possible history of a lock. It
// requires a holder for every busy answer, unless an attempt of unknown outcome may
// have the key. passedWrongly also checks the leases to which a hold was passed on. In
// runs in which the server loses its data, the kit promises only tokens. In these runs,
// holds may overlap only if the server has lost one of them.
//
// A history fails as vacuous if it has too few events of some kind, see
// verdict.vacuous. LOCKKIT_SEED=n replays the nemesis of a run. The reactions of
// processes and network cannot be replayed.
package histories_test

import (
	"log/slog"
	"os"
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
	logging.Disable()                              // clients log each stopped server
	slog.SetDefault(slog.New(slog.DiscardHandler)) // and lockers log each loss
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

const (
	// ttl is the TTL of all leases.
	ttl = time.Second
	// patience limits how long a test waits for an event.
	patience = 60 * time.Second
)
