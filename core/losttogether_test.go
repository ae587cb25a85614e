package core_test

import (
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/proof/tally"
)

// TestLoss_FoundTogether checks that several goroutines find the end of the trust at
// the same moment as the watchdog. Row 1 of the hazards in PROOF.md requires this.
func TestLoss_FoundTogether(t *testing.T) {
	t.Parallel()
	sim(t, "every check fails", func(t *testing.T) {
		l := newLocker(t, memstore.New())
		for range tally.AllTrials(2000) {
			lease := acquire(t, t.Context(), l, "order:1", core.TTL(time.Second), core.NoRenew())
			end := time.Until(lease.Deadline())
			var checks sync.WaitGroup
			for range 4 {
				checks.Go(func() {
					time.Sleep(end)
					if lease.Context().Err() == nil {
						t.Error("got no error after the end of the trust, want one")
					}
				})
			}
			checks.Wait()
			_ = lease.Release(t.Context())
		}
	})
}
