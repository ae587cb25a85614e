package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
)

// TestWatchdog covers hazards 45 and 46 of PROOF.md.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	// A lease is extended every third of its TTL, for 24 hours.
	sim(t, "extended for a day", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		last, end := time.Now(), time.Now().Add(24*time.Hour)
		for time.Now().Before(end) {
			time.Sleep(10 * time.Minute)
			wantHeldLease(t, lease)
			wantHeld(t, store.inner, "order:1")
			for _, c := range store.sent(opExtend) {
				if gap := c.at.Sub(last); gap < 8*time.Second || gap > 10*time.Second {
					t.Fatalf("%v between two extensions, want about 10s", gap)
				}
				last = c.at
			}
			if time.Since(last) > 10*time.Second {
				t.Fatalf("the last extension was %v ago", time.Since(last))
			}
			store.forget()
		}
		release(t, lease)
		wantFree(t, store.inner, "order:1")
	})
	// A hanging extension delays neither the extensions nor the losses of other leases.
	sim(t, "hanging extension", func(t *testing.T) {
		l, store := setup(t)
		long := acquire(t, t.Context(), l, "order:long")
		time.Sleep(8 * time.Second)
		store.set(first(1, hang), opExtend)
		short := acquire(t, t.Context(), l, "order:short", core.TTL(time.Second))
		time.Sleep(3 * time.Second)
		wantHeldLease(t, short)
		store.set(hang, opExtend)
		start := time.Now()
		lossTime(t, short)
		if took := time.Since(start); took > time.Second {
			t.Errorf("got the loss of the short lease %v after the store began to hang", took)
		}
		wantHeldLease(t, long)
		store.set(nil, opExtend)
		time.Sleep(time.Minute)
		wantHeldLease(t, long)
		release(t, long)
		wantErr(t, short.Release(t.Context()), core.ErrLost)
	})
	// If ctx of Acquire is done, the lease is still extended until Release.
	sim(t, "ctx of Acquire is done", func(t *testing.T) {
		l, store := setup(t)
		ctx, cancel := context.WithCancel(t.Context())
		lease := acquire(t, ctx, l, "order:1")
		cancel()
		if err := context.Cause(lease.Context()); err != context.Canceled {
			t.Errorf("got cause %v", err)
		}
		time.Sleep(time.Hour)
		wantHeld(t, store.inner, "order:1")
		release(t, lease)
		wantFree(t, store.inner, "order:1")
	})
	// Nothing is extended after Release has returned.
	sim(t, "released lease", func(t *testing.T) {
		l, store := setup(t)
		released := make(map[string]time.Time)
		rounds := tally.AllTrials(1000)
		for i := range rounds {
			store.set(jitter(5*time.Millisecond), opExtend, opRelease)
			lease := acquire(t, t.Context(), l, fmt.Sprint("order:", i), core.TTL(300*time.Millisecond))
			time.Sleep(80*time.Millisecond + rand.N(40*time.Millisecond))
			if rand.N(2) == 0 {
				synctest.Wait()
			}
			release(t, lease)
			released[lease.Key()] = time.Now()
		}
		time.Sleep(time.Minute)
		n := 0
		for _, c := range store.sent(opExtend) {
			for _, claim := range c.claims {
				n++
				if late := c.at.Sub(released[claim.Key]); late > 0 {
					t.Fatalf("%s was extended %v after its release", claim.Key, late)
				}
			}
		}
		if n < rounds/10 {
			t.Errorf("only %d extensions: the releases came too early", n)
		}
	})
	sim(t, "Release ends the lease first", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		time.Sleep(9500 * time.Millisecond)
		store.set(func(_ context.Context, _ int, do func() error) error {
			if context.Cause(lease.Context()) != context.Canceled || lease.Deadline().After(time.Now()) {
				t.Error("got a lease that is held while it is being released")
			}
			store.forget()
			time.Sleep(1500 * time.Millisecond)
			if n := store.count(opExtend); n != 0 {
				t.Errorf("%d extensions while the lease is being released", n)
			}
			return do()
		}, opRelease)
		release(t, lease)
	})
	// If the store grants less time than the TTL, the lease is extended before the
	// granted time has passed.
	sim(t, "short grant", func(t *testing.T) {
		for _, part := range []time.Duration{2, 15} {
			store := newScripted(nil)
			inner := &stingy{memStore(), 30 * time.Second / part}
			store.inner = inner
			l := newLocker(t, store)
			start := time.Now()
			lease := acquire(t, t.Context(), l, "order:1")
			if d := time.Until(lease.Deadline()); d != core.Trust(inner.valid) {
				t.Errorf("trusted for %v, want %v", d, core.Trust(inner.valid))
			}
			time.Sleep(10 * time.Minute)
			wantHeldLease(t, lease)
			n, want := store.count(opExtend), int(time.Since(start)*3/inner.valid)
			if n < want || n > want*6/5 {
				t.Errorf("%d extensions, want about %d", n, want)
			}
			store.set(hang, opExtend)
			before := time.Now()
			if d := lossTime(t, lease).Sub(before); d > inner.valid {
				t.Errorf("lost after %v, want less than %v", d, inner.valid)
			}
			wantErr(t, lease.Release(t.Context()), core.ErrLost)
		}
	})
}

func TestMaxHold(t *testing.T) {
	t.Parallel()
	// After MaxHold the lease is not extended and expires within its TTL, and the
	// observer is notified once.
	sim(t, "extended until MaxHold", func(t *testing.T) {
		for _, limit := range []time.Duration{time.Second, 15 * time.Second, 95 * time.Second, time.Hour} {
			seen := &recorder{}
			l, store := setup(t, core.WithObserver(seen))
			start := time.Now()
			lease := acquire(t, t.Context(), l, "order:1", core.MaxHold(limit))
			end := lossTime(t, lease).Sub(start)
			if end > limit+30*time.Second || limit > 30*time.Second && end < limit {
				t.Errorf("MaxHold(%v): got the loss after %v", limit, end)
			}
			for _, c := range store.sent(opExtend) {
				if at := c.at.Sub(start); at > limit {
					t.Errorf("MaxHold(%v): extended after %v", limit, at)
				}
			}
			if over := seen.all(core.Overrun); len(over) != 1 || over[0].Held < limit || over[0].Name != "order" {
				t.Errorf("MaxHold(%v): got overruns %+v", limit, over)
			}
			time.Sleep(2 * time.Second)
			wantFree(t, store.inner, "order:1")
			wantErr(t, lease.Release(t.Context()), core.ErrLost)
		}
	})
	// For a lease that is released before MaxHold, the observer is not notified of
	// Overrun.
	sim(t, "released in time", func(t *testing.T) {
		seen := &recorder{}
		l, _ := setup(t, core.WithObserver(seen))
		lease := acquire(t, t.Context(), l, "order:1", core.MaxHold(time.Minute))
		time.Sleep(50 * time.Second)
		wantHeldLease(t, lease)
		release(t, lease)
		time.Sleep(time.Minute)
		if kinds := seen.kinds(); strings.Contains(kinds, "overrun") {
			t.Errorf("got %s", kinds)
		}
	})
	// A NoRenew lease expires after its TTL, and Extend makes such a lease last longer.
	sim(t, "NoRenew and Extend", func(t *testing.T) {
		l, store := setup(t)
		start := time.Now()
		lease := acquire(t, t.Context(), l, "order:1", core.NoRenew(), core.TTL(10*time.Second))
		if d := lossTime(t, lease).Sub(start); d != core.Trust(10*time.Second) {
			t.Errorf("lost after %v, want %v", d, core.Trust(10*time.Second))
		}
		wantErr(t, lease.Release(t.Context()), core.ErrLost)

		start = time.Now()
		lease = acquire(t, t.Context(), l, "order:2", core.NoRenew(), core.TTL(10*time.Second))
		time.Sleep(5 * time.Second)
		if err := lease.Extend(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		if d := lossTime(t, lease).Sub(start); d != 5*time.Second+core.Trust(time.Minute) {
			t.Errorf("lost after %v, want %v", d, 5*time.Second+core.Trust(time.Minute))
		}
		if n := store.count(opExtend); n != 1 {
			t.Errorf("%d extensions, want 1", n)
		}
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
	})
}

// stingy is a store that grants a shorter time than the TTL.
type stingy struct {
	core.Store
	valid time.Duration
}

func (s *stingy) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	c.TTL = s.valid
	g, err := s.Store.Acquire(ctx, c)
	g.Valid = s.valid
	return g, err
}

func (s *stingy) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	for i := range claims {
		claims[i].TTL = s.valid
	}
	answers := s.Store.Extend(ctx, claims)
	for i := range answers {
		answers[i].Valid = s.valid
	}
	return answers
}
