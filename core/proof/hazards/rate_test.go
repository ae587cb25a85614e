package hazards_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestClockRate checks servers whose clocks run faster than the holder's clock.
func TestClockRate(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	// hazard 22. No lease is trusted after its expiry.
	t.Run("1 percent fast trust", func(t *testing.T) {
		t.Parallel()
		const rate, ttl = 1.01, 6 * time.Second
		server := testserver.NewClock(t, rate).StartRedis()
		var looks, closest atomic.Int64
		closest.Store(int64(ttl))
		t.Cleanup(func() {
			n := int(looks.Load())
			tally.Note(t, tally.Facts{
				Part: "processes", Runs: count(20), Faults: map[string]int{"clock 1 percent fast": count(20)},
				Violations: map[string]int{"trust after expiry": 0}, Outcomes: map[string]int{"deadlines compared": n},
			})
			t.Logf("%d deadlines compared, the closest was %v before the server's", n, time.Duration(closest.Load()).Round(time.Millisecond))
			if n < 10*count(20) {
				t.Errorf("test setup: %d deadlines compared", n)
			}
		})
		trials(t, count(20), func(t *testing.T, n int) {
			asks, key := inspect(t, server), fmt.Sprintf("fast:%d", n)
			lease := acquire(t, newLocker(t, server.Addr), key, core.TTL(ttl))
			hold := asks.hold(key)
			for end := mono() + int64(ttl); mono() < end; time.Sleep(100 * time.Millisecond) {
				// The trusted time is read first. Both times may grow between the two
				// readings.
				local := mono() + int64(time.Until(lease.Deadline()))
				asked := mono()
				from, to := asks.expires(key, hold)
				if to-from > int64(20*time.Millisecond) {
					continue // too inexact to compare, on a busy machine
				}
				expiry := asked + int64(float64(from-asked)/rate)
				if local >= expiry {
					t.Errorf("the lease is trusted for %v longer than it lasts", ms(expiry, local))
				}
				looks.Add(1)
				for c := closest.Load(); expiry-local < c && !closest.CompareAndSwap(c, expiry-local); c = closest.Load() {
				}
			}
			wantHeld(t, lease)
			release(t, lease)
		})
	})
	// hazard 22. No key is granted while its last holder still trusts its lease.
	t.Run("1 percent fast next grant", func(t *testing.T) {
		t.Parallel()
		server := testserver.NewClock(t, 1.01).StartRedis()
		oracle := newOracle(t, 2*count(20))
		trials(t, count(20), func(t *testing.T, n int) {
			early, late := fixedLease(t, server, fmt.Sprintf("fixed:%d", n))
			oracle.add(early)
			oracle.add(late)
		})
	})
	// hazard 22. A clock that is 10 percent fast exceeds the margin of the trust. There
	// are two holders for a moment.
	t.Run("limit of 10 percent fast", func(t *testing.T) {
		t.Parallel()
		server := testserver.NewClock(t, 1.1).StartRedis()
		var overlaps atomic.Int64
		t.Cleanup(func() {
			n := int(overlaps.Load())
			tally.Note(t, tally.Facts{
				Part: "limits", Runs: count(20), Faults: map[string]int{"clock 10 percent fast": count(20)},
				Expected: map[string]int{"overlaps": n},
			})
			if !t.Failed() && n < count(20)/2 {
				t.Errorf("%d overlaps; if this is prevented now, the documentation promises too little", n)
			}
		})
		trials(t, count(20), func(t *testing.T, n int) {
			var o oracle
			early, late := fixedLease(t, server, fmt.Sprintf("beyond:%d", n))
			o.add(early)
			o.add(late)
			overlaps.Add(int64(len(o.verdict())))
		})
	})
}

// fixedLease holds a key without extensions for as long as the lease is trusted.
// Meanwhile another Locker requests the key all the time.
func fixedLease(t *testing.T, server *testserver.Redis, key string) (early, late span) {
	t.Helper()
	const ttl = 6 * time.Second
	first, second := newLocker(t, server.Addr), newLocker(t, server.Addr)
	lease := acquire(t, first, key, core.TTL(ttl), core.NoRenew())
	early = span{Key: key, Who: "first", From: mono(), Token: lease.Token()}
	next := make(chan span, 1)
	go func() {
		s := span{Key: key, Who: "second"}
		for end := mono() + int64(patience); mono() < end; time.Sleep(5 * time.Millisecond) {
			if rival, err := second.TryAcquire(context.Background(), key); err == nil {
				s.From, s.Token = mono(), rival.Token()
				s.Until = guard(rival, time.Millisecond, func() {})
				break
			}
		}
		next <- s
	}()
	early.Until = guard(lease, patience, func() {})
	wantLost(t, lease)
	if late = <-next; late.From == 0 {
		t.Error("no other process was granted the key")
	}
	return early, late
}
