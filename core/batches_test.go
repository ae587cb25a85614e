package core_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
)

// TestBatches covers hazard 46 of PROOF.md with many leases.
func TestBatches(t *testing.T) {
	t.Parallel()
	sim(t, "thousands in batches", func(t *testing.T) {
		const ttl = 30 * time.Second
		leases := max(5000, tally.AllTrials(10_000))
		l, store := setup(t)
		var all []*core.Lease
		for i := range leases {
			all = append(all, acquire(t, t.Context(), l, fmt.Sprint("order:", i)))
		}
		store.set(slow(time.Millisecond, time.Millisecond), opExtend)
		calls, largest, most := 0, 0, 0
		for range 40 { // for four TTLs
			store.forget()
			time.Sleep(ttl / 10)
			sent := store.sent(opExtend)
			calls += len(sent)
			for _, c := range sent {
				largest = max(largest, len(c.claims))
			}
			most = max(most, store.atMost())
		}
		for _, lease := range all {
			wantHeldLease(t, lease)
		}
		if limit := 14 * (leases/512 + 6); calls == 0 || calls > limit {
			t.Errorf("%d calls to extend 12 times, want at most %d", calls, limit)
		}
		if largest > 512 || most > 8 {
			t.Errorf("%d claims in one call, %d calls at once; want at most 512 and 8", largest, most)
		}
		for _, lease := range all {
			release(t, lease)
		}
		store.forget()
		time.Sleep(ttl)
		if n := store.count(); n != 0 {
			t.Errorf("%d calls after all were released, want none", n)
		}
	})
	// Batches are extended concurrently. If they were sent one after the other to a
	// slow store, some leases would be lost.
	sim(t, "batches side by side", func(t *testing.T) {
		tally.ProofOnly(t)
		l, store := setup(t)
		var all []*core.Lease
		for i := range 5000 {
			all = append(all, acquire(t, t.Context(), l, fmt.Sprint("order:", i), core.TTL(time.Second)))
		}
		store.set(slow(80*time.Millisecond, 80*time.Millisecond), opExtend)
		time.Sleep(5 * time.Second)
		store.set(nil, opExtend)
		for _, lease := range all {
			wantHeldLease(t, lease)
			release(t, lease)
		}
	})
	// Even if all calls hang, the store is soon asked to extend all leases that are
	// due.
	sim(t, "calls hang", func(t *testing.T) {
		leases := tally.AllTrials(30_000)
		l, store := setup(t)
		var all []*core.Lease
		for i := range leases {
			all = append(all, acquire(t, t.Context(), l, fmt.Sprint("order:", i)))
		}
		store.forget()
		store.set(hang, opExtend)
		time.Sleep(10*time.Second + 2*time.Second)
		asked := make(map[string]bool)
		for _, c := range store.sent(opExtend) {
			for _, claim := range c.claims {
				asked[claim.Key] = true
			}
		}
		if len(asked) != leases {
			t.Errorf("two seconds after all %d were due, %d were asked for", leases, len(asked))
		}
		store.set(nil, opExtend)
		time.Sleep(time.Minute)
		for _, lease := range all {
			wantHeldLease(t, lease)
			release(t, lease)
		}
	})
	// A lease is not extended if its batch is sent after the lease's MaxHold.
	sim(t, "late turn after MaxHold", func(t *testing.T) {
		leases, limit := tally.AllTrials(20_000), 9100*time.Millisecond
		l, store := setup(t)
		var all []*core.Lease
		for i := range leases {
			all = append(all, acquire(t, t.Context(), l, fmt.Sprint("order:", i), core.MaxHold(limit)))
		}
		start := time.Now()
		store.set(hang, opExtend)
		time.Sleep(25 * time.Second)
		asked := 0
		for _, c := range store.sent(opExtend) {
			asked += len(c.claims)
			if late := c.at.Sub(start) - limit; late > 0 {
				t.Fatalf("%d claims were asked for %v after MaxHold", len(c.claims), late)
			}
		}
		if asked == 0 || asked == leases {
			t.Errorf("test setup: got %d of %d asked for before MaxHold", asked, leases)
		}
		for _, lease := range all {
			wantHeldLease(t, lease)
			release(t, lease)
		}
	})
	// Leases that were granted at different times share calls.
	sim(t, "calls are shared", func(t *testing.T) {
		l, store := setup(t)
		var all []*core.Lease
		for i := range 200 {
			all = append(all, acquire(t, t.Context(), l, fmt.Sprint("order:", i)))
			time.Sleep(100 * time.Millisecond)
		}
		store.forget()
		time.Sleep(time.Minute)
		if n := store.count(); n > 120 { // 1200 calls without sharing
			t.Errorf("%d calls in a minute for 200 leases", n)
		}
		for _, lease := range all {
			wantHeldLease(t, lease)
			release(t, lease)
		}
	})
}
