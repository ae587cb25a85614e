package hazards_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestRestart restarts a server (hazard 30). A restart without data is a limit of a
// single server. After such a restart the test expects two holders, until the first
// holder is notified. The token distinguishes the two holders.
func TestRestart(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	const ttl = 18 * time.Second
	t.Run("limit without data", func(t *testing.T) {
		t.Parallel()
		var seen takeovers
		seen.note(t, "server restarted empty")
		both := newBites(t, "two held until the loss", count(50)/2)
		trials(t, count(50), func(t *testing.T, n int) {
			server := testserver.StartRedis(t)
			lease := acquire(t, newLocker(t, server.Addr), fmt.Sprintf("emptied:%d", n), core.TTL(ttl))
			time.Sleep(rand.N(ttl / 3)) // at any phase of its extensions
			server.RestartEmpty()
			if seen.usurp(t, lease, ttl, newLocker(t, server.Addr)) {
				both.add()
			}
		})
	})
	t.Run("with all data on disk", func(t *testing.T) {
		t.Parallel()
		n := count(50)
		tally.Note(t, tally.Facts{
			Part: "processes", Runs: n, Faults: map[string]int{"server restarted": n}, Violations: map[string]int{"overlaps": 0},
		})
		trials(t, n, func(t *testing.T, n int) {
			const ttl = 6 * time.Second
			server := testserver.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
			key := fmt.Sprintf("saved:%d", n)
			lease := acquire(t, newLocker(t, server.Addr), key, core.TTL(ttl))
			time.Sleep(rand.N(ttl / 3))
			server.Restart()
			rivals := newLocker(t, server.Addr)
			// The loop takes longer than a lease lasts without extensions.
			for end := mono() + int64(3*ttl/2); mono() < end; time.Sleep(50 * time.Millisecond) {
				wantBusy(t, rivals, key)
			}
			wantHeld(t, lease)
			release(t, lease)
			wantFree(t, rivals, key)
		})
	})
}
