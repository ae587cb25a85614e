// Package histories_test records what many processes do with a few keys of one
// Redis while a nemesis kills, stops, freezes and cuts them off, and has the
// record judged by what stands outside of the kit.
//
// Three judges look at each history. The interval oracle: on the machine's one
// monotonic clock, the stretches in which processes relied on a key are disjoint,
// and tokens grow in the order of real time. The register: a resource that refuses
// older tokens has taken no write of a holder after one of its successor. And
// porcupine, to which the history has to look like that of one lock, and which
// wants a holder for every busy answer, unless an attempt of unknown outcome may have
// the key. Runs in which the server loses its data promise tokens only: holds may
// overlap there, but only where it has lost one.
//
// A history with too few grants, changes of hands, unknown outcomes, busy answers
// that were judged or faults that bit has shown nothing, and fails. LOCKKIT_SEED=n plays the nemesis of a run
// again; how processes and network go about it cannot be repeated.
package histories_test

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/lockkit/lockkit/core/proof/tally"
)

func TestMain(m *testing.M) {
	if plan := os.Getenv(workerEnv); plan != "" {
		os.Exit(work(plan))
	}
	if !tally.Wanted() {
		return
	}
	logging.Disable()                              // clients tell of every server that a test has ended
	slog.SetDefault(slog.New(slog.DiscardHandler)) // and lockers of each loss
	goleak.VerifyTestMain(m)
}

// mono is the monotonic clock in nanoseconds. It is one clock for all processes
// of a machine.
func mono() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

const (
	// ttl of all leases.
	ttl = time.Second
	// patience is how long a test waits for what has to come.
	patience = 60 * time.Second
)
