package core_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
)

// cutOff holds a lease for a while and then cuts the store off with f. It returns the
// time at which the last confirmed attempt was sent, and the time of the loss.
func cutOff(t *testing.T, ttl time.Duration, f fault) (sent, lost time.Time) {
	t.Helper()
	l, store := setup(t)
	var confirmed atomic.Pointer[time.Time]
	whole := jitter(min(ttl/30, 5*time.Millisecond))
	store.set(func(ctx context.Context, n int, do func() error) error {
		start := time.Now()
		err := whole(ctx, n, do)
		if err == nil {
			confirmed.Store(&start)
		}
		return err
	}, opAcquire, opExtend)
	lease := acquire(t, t.Context(), l, "order:1", core.TTL(ttl))
	time.Sleep(rand.N(5 * ttl))
	wantHeldLease(t, lease)
	store.setAll(f)
	defer store.setAll(nil)
	if rand.N(2) == 0 { // half of the rounds poll Err, the other half wait for Done
		for lease.Context().Err() == nil {
			time.Sleep(ttl / 100)
		}
	}
	lost = lossTime(t, lease)
	wantLost(t, lease)
	wantHeld(t, store.inner, "order:1") // still held at the store at the moment of the loss
	time.Sleep(ttl / 50)
	wantHeld(t, store.inner, "order:1") // and during the margin after it
	store.setAll(nil)
	wantErr(t, lease.Release(t.Context()), core.ErrLost)
	return *confirmed.Load(), lost
}

// TestCutOff covers hazards 10 and 46 of PROOF.md.
func TestCutOff(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{
		"store does not answer":     hang,
		"store does not confirm":    loseReply,
		"store breaks connections":  loseRequest,
		"store refuses connections": refuse,
		"store ignores its context": func(context.Context, int, func() error) error {
			time.Sleep(time.Minute)
			return errBroken
		},
	} {
		sim(t, name, func(t *testing.T) {
			for i := range tally.AllTrials(250) {
				ttl := []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second, 30 * time.Second}[i%4]
				sent, lost := cutOff(t, ttl, f)
				if d := lost.Sub(sent); d < core.Trust(ttl) || d > core.Trust(ttl)+ttl/100 {
					t.Fatalf("TTL %v: lost %v after the last confirmed attempt was sent, want %v", ttl, d, core.Trust(ttl))
				}
			}
		})
	}
	// A failing store is asked several times before the loss, but not in a hot loop.
	sim(t, "failing store is asked again", func(t *testing.T) {
		for _, ttl := range []time.Duration{100 * time.Millisecond, time.Second, 30 * time.Second, time.Hour} {
			l, store := setup(t)
			lease := acquire(t, t.Context(), l, "order:1", core.TTL(ttl))
			store.set(refuse, opExtend)
			lossTime(t, lease)
			if n := store.count(opExtend); n < 3 || n > 60 && n > int(ttl/time.Second) {
				t.Errorf("TTL %v: asked %d times before the loss", ttl, n)
			}
			wantErr(t, lease.Release(t.Context()), core.ErrLost)
		}
	})
	// The time limit of each attempt to extend a lease is at most the remaining trust
	// in the lease.
	sim(t, "attempts within the lease", func(t *testing.T) {
		for _, ttl := range []time.Duration{100 * time.Millisecond, time.Second, 30 * time.Second} {
			l, store := setup(t)
			lease := acquire(t, t.Context(), l, "order:1", core.TTL(ttl))
			store.set(func(ctx context.Context, n int, do func() error) error {
				until, ok := ctx.Deadline()
				if !ok || until.After(lease.Deadline()) || time.Until(until) > max(ttl/6, 20*time.Millisecond) {
					t.Errorf("TTL %v: attempt %d may last until %v after the end of the lease", ttl, n, until.Sub(lease.Deadline()))
				}
				return hang(ctx, n, do)
			}, opExtend)
			lossTime(t, lease)
			wantErr(t, lease.Release(t.Context()), core.ErrLost)
		}
	})
	// A lease survives transient errors of its extensions.
	sim(t, "errors that pass", func(t *testing.T) {
		for _, f := range []fault{loseRequest, loseReply, refuse, hang} {
			l, store := setup(t)
			var seen atomic.Int32
			store.set(func(ctx context.Context, n int, do func() error) error {
				if n%3 == 0 {
					return do()
				}
				seen.Add(1)
				return f(ctx, n, do)
			}, opExtend)
			lease := acquire(t, t.Context(), l, "order:1", core.TTL(10*time.Second))
			for range 100 {
				time.Sleep(3 * time.Second)
				wantHeldLease(t, lease)
				wantHeld(t, store.inner, "order:1")
			}
			if n := seen.Load(); n < 50 {
				t.Errorf("only %d errors", n)
			}
			release(t, lease)
		}
	})
}

// TestLoss_Final covers hazard 16 of PROOF.md.
func TestLoss_Final(t *testing.T) {
	t.Parallel()
	// A success after the loss does not restore the lease.
	sim(t, "success after the loss", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1", core.TTL(10*time.Second))
		// The store's client ignores its context.
		store.set(func(_ context.Context, _ int, do func() error) error {
			do()
			time.Sleep(10 * time.Second)
			do()
			return nil
		}, opExtend)
		lossTime(t, lease)
		time.Sleep(9 * time.Second)
		wantLost(t, lease)
		wantErr(t, lease.Extend(t.Context(), time.Minute), core.ErrLost)
		if n := store.count(opExtend); n != 1 {
			t.Errorf("%d extensions, want none after the loss", n)
		}
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
		time.Sleep(time.Second)
		wantFree(t, store.inner, "order:1")
	})
	// A single answer "lost" of the store makes a lease lost for good.
	sim(t, "lost by one answer", func(t *testing.T) {
		seen := &recorder{}
		l, store := setup(t, core.WithObserver(seen))
		store.set(first(1, func(context.Context, int, func() error) error { return core.ErrLost }), opExtend)
		lease := acquire(t, t.Context(), l, "order:1")
		start := time.Now()
		if d := lossTime(t, lease).Sub(start); d > 10*time.Second {
			t.Errorf("lost after %v, want at the first extension", d)
		}
		time.Sleep(time.Minute)
		wantLost(t, lease)
		if n := store.count(opExtend); n != 1 {
			t.Errorf("%d extensions, want none after the loss", n)
		}
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
		if lost := seen.all(core.Lost); len(lost) != 1 {
			t.Errorf("got %d losses, want one", len(lost))
		}
	})
	// Release of a lost lease returns at once. If the store still has the hold, the key
	// becomes free in the background.
	sim(t, "quiet release", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		store.set(hang, opExtend)
		lossTime(t, lease)
		wantHeld(t, store.inner, "order:1")
		start := time.Now()
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
		if d := time.Since(start); d != 0 {
			t.Errorf("Release took %v", d)
		}
		time.Sleep(10 * time.Millisecond)
		wantFree(t, store.inner, "order:1")
	})
	// After a loss, a new lease of the key can be acquired.
	sim(t, "acquired again", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		store.set(hang, opExtend)
		lossTime(t, lease)
		store.set(nil, opExtend)
		again := acquire(t, t.Context(), l, "order:1")
		if again.Token() <= lease.Token() || again.Owner() == lease.Owner() {
			t.Error("the new lease has the old token or owner")
		}
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
		time.Sleep(time.Minute)
		wantHeldLease(t, again)
		wantHeld(t, store.inner, "order:1")
		release(t, again)
	})
}

// TestTrust covers hazard 44 of PROOF.md.
func TestTrust(t *testing.T) {
	t.Parallel()
	// The trust in a lease counts from the time at which the attempt was sent, and not
	// from the answer.
	sim(t, "trust counts from the request", func(t *testing.T) {
		l, store := setup(t)
		store.set(slow(0, 1500*time.Millisecond), opAcquire, opExtend)
		start := time.Now()
		lease := acquire(t, t.Context(), l, "order:1", core.TTL(12*time.Second))
		if d := lease.Deadline().Sub(start); d != core.Trust(12*time.Second) {
			t.Errorf("trusted until %v after sending, want %v", d, core.Trust(12*time.Second))
		}
		time.Sleep(5 * time.Second)
		sent := store.sent(opExtend)[0].at
		if d := lease.Deadline().Sub(sent); d != core.Trust(12*time.Second) {
			t.Errorf("trusted until %v after the extension was sent, want %v", d, core.Trust(12*time.Second))
		}
		release(t, lease)
	})
	// Acquire does not return a lease for a grant whose answer took the whole TTL or
	// longer.
	sim(t, "grant after its expiry", func(t *testing.T) {
		for _, d := range []time.Duration{10 * time.Second, time.Minute} {
			l, store := setup(t)
			store.set(first(1, func(_ context.Context, _ int, do func() error) error {
				err := do()
				time.Sleep(d) // a client that ignores its context
				return err
			}), opAcquire)
			lease := acquire(t, t.Context(), l, "order:1", core.TTL(10*time.Second))
			wantHeldLease(t, lease)
			if n := store.count(opAcquire); n != 2 {
				t.Errorf("asked %d times, want twice", n)
			}
			wantHeld(t, store.inner, "order:1")
			time.Sleep(time.Minute)
			wantHeldLease(t, lease)
			release(t, lease)
			time.Sleep(time.Second)
			wantFree(t, store.inner, "order:1")
		}
	})
	// If every grant arrives too late, Acquire fails and no hold is left.
	sim(t, "every answer too late", func(t *testing.T) {
		l, store := setup(t)
		store.set(func(_ context.Context, _ int, do func() error) error {
			err := do()
			time.Sleep(10 * time.Second)
			return err
		}, opAcquire)
		_, err := l.Acquire(t.Context(), "order:1", core.TTL(10*time.Second))
		wantErr(t, err, core.ErrUnavailable)
		time.Sleep(10 * time.Millisecond)
		wantFree(t, store.inner, "order:1")
	})
	t.Run("margin of the trust", func(t *testing.T) {
		t.Parallel()
		for valid, want := range map[time.Duration]time.Duration{
			100 * time.Millisecond: 93 * time.Millisecond,
			30 * time.Second:       28498 * time.Millisecond,
		} {
			if got := core.Trust(valid); got != want {
				t.Errorf("%v is trusted for %v, want %v", valid, got, want)
			}
		}
	})
}
