package core_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
)

// cycles makes n goroutines acquire the key order:1 k times each, and hold it for d
// each time.
func cycles(t *testing.T, l *core.Locker, n, k int, d time.Duration, o ...core.AcquireOption) {
	t.Helper()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for range k {
				err := l.Do(t.Context(), "order:1", func(ctx context.Context) error {
					time.Sleep(d)
					return ctx.Err()
				}, o...)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// next acquires a lease, and starts a waiter for its key in the same process.
func next(t *testing.T, l *core.Locker, o ...core.AcquireOption) (holder *core.Lease, got <-chan *core.Lease) {
	t.Helper()
	holder = acquire(t, t.Context(), l, "order:1", o...)
	ch := make(chan *core.Lease, 1)
	go func() {
		lease, err := l.Acquire(t.Context(), "order:1", o...)
		if err != nil {
			t.Errorf("the next: %v", err)
		}
		ch <- lease
	}()
	synctest.Wait()
	return holder, ch
}

func TestPassingOn_Order(t *testing.T) {
	t.Parallel()
	// Goroutines of one process use a key one after the other with few calls, for short
	// and for long holds.
	sim(t, "few calls for many cycles", func(t *testing.T) {
		for hold, most := range map[time.Duration]float64{0: 0.3, 100 * time.Microsecond: 1.1, time.Millisecond: 1.5, 100 * time.Millisecond: 4.1} {
			goroutines, rounds := 64, tally.AllTrials(20)
			l, store := setup(t)
			store.setAll(slow(50*time.Microsecond, 50*time.Microsecond))
			cycles(t, l, goroutines, rounds, hold)
			if n := store.count(); float64(n) > float64(goroutines*rounds)*most+10 {
				t.Errorf("%d calls for %d cycles of %v", n, goroutines*rounds, hold)
			}
			store.setAll(nil)
			wantFree(t, store.inner, "order:1")
		}
	})
	// The next lease has a new token and is extended, and the observer is notified of
	// both leases.
	sim(t, "new token and events", func(t *testing.T) {
		events := &recorder{}
		l, store := setup(t, core.WithObserver(events))
		holder, got := next(t, l)
		token := holder.Token()
		release(t, holder)
		lease := <-got
		if lease.Token() <= token {
			t.Errorf("token %d came after %d", lease.Token(), token)
		}
		if n := len(events.all(core.PassedOn)); n != 1 || store.count(opRelease) != 0 {
			t.Errorf("passed on %d times, released %d times", n, store.count(opRelease))
		}
		time.Sleep(time.Hour)
		wantHeldLease(t, lease)
		wantHeld(t, store.inner, "order:1")
		release(t, lease)
		wantFree(t, store.inner, "order:1")
	})
	// Another process gets the key soon, even if many callers of this process want the
	// key.
	sim(t, "turn of another process", func(t *testing.T) {
		for _, hold := range []time.Duration{0, 100 * time.Microsecond, 5 * time.Millisecond, 50 * time.Millisecond} {
			l, store := setup(t)
			store.setAll(slow(50*time.Microsecond, 50*time.Microsecond))
			other := newLocker(t, store.inner)
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for ctx.Err() == nil {
						_ = l.Do(ctx, "order:1", func(context.Context) error {
							time.Sleep(hold)
							return nil
						})
					}
				})
			}
			for range tally.AllTrials(50) {
				time.Sleep(rand.N(20 * time.Millisecond))
				before := store.count(opRelease)
				start := time.Now()
				lease := acquire(t, t.Context(), other, "order:1")
				if n, took := store.count(opRelease)-before, time.Since(start); n > 3 || took > 15*time.Millisecond+2*hold {
					t.Errorf("with holds of %v: got a wait of %v and %d releases", hold, took, n)
				}
				release(t, lease)
			}
			stop()
			wg.Wait()
		}
	})
	for name, f := range map[string]fault{
		"request lost": loseRequest, "reply lost": loseReply, "refused": refuse,
		"hang before": hang, "hang after": hangAfter, "late": late(time.Second),
		"very late": late(5 * time.Second),
	} {
		sim(t, "release "+name, func(t *testing.T) {
			for range tally.AllTrials(20) {
				l, store := setup(t)
				store.set(first(1, f), opRelease)
				holder, got := next(t, l)
				time.Sleep(20 * time.Millisecond) // the hold is no longer passed on
				start := time.Now()
				if err := holder.Release(t.Context()); err != nil {
					t.Errorf("Release: %v", err)
				}
				if took := time.Since(start); took > 3*time.Second {
					t.Errorf("got the key after %v", took)
				}
				lease := <-got
				if took := time.Since(start); took > 4*time.Second {
					t.Errorf("the next one waited for %v", took)
				}
				time.Sleep(20 * time.Second)
				wantHeldLease(t, lease)
				wantHeld(t, store.inner, "order:1")
				release(t, lease)
				time.Sleep(10 * time.Second)
				wantFree(t, store.inner, "order:1")
			}
		})
		sim(t, "next one leaves "+name, func(t *testing.T) {
			for range tally.AllTrials(50) {
				l, store := setup(t)
				store.set(first(1, f), opRelease)
				holder := acquire(t, t.Context(), l, "order:1")
				ctx, cancel := context.WithTimeout(t.Context(), time.Second+rand.N(3*time.Second))
				done := make(chan struct{})
				go func() {
					defer close(done)
					if lease, err := l.Acquire(ctx, "order:1"); err == nil {
						release(t, lease)
					}
				}()
				time.Sleep(time.Second)
				if err := holder.Release(t.Context()); err != nil {
					t.Errorf("Release: %v", err)
				}
				<-done
				cancel()
				time.Sleep(10 * time.Second)
				wantFree(t, store.inner, "order:1")
				if took := freeAfter(store.inner, "order:1"); took != 0 {
					t.Errorf("the key was free %v later", took)
				}
			}
		})
	}
	// A lost hold is not passed on, and the next waiter asks the store.
	sim(t, "lost hold", func(t *testing.T) {
		l, store := setup(t)
		holder, got := next(t, l, core.TTL(3*time.Second), core.NoRenew())
		time.Sleep(3 * time.Second)
		wantLost(t, holder)
		wantErr(t, holder.Release(t.Context()), core.ErrLost)
		lease := <-got
		wantHeld(t, store.inner, "order:1")
		release(t, lease)
	})
	// A waiter behind a lost lease gets the key when the lease's hold expires at the
	// store.
	sim(t, "waiter behind a lost lease", func(t *testing.T) {
		l, store := setup(t)
		store.set(refuse, opExtend)
		start := time.Now()
		holder, got := next(t, l, core.TTL(3*time.Second))
		lease := <-got
		wantLost(t, holder)
		if took := time.Since(start); took < 2700*time.Millisecond || took > 3100*time.Millisecond {
			t.Errorf("served %v after the grant of a lease of 3s", took)
		}
		wantErr(t, holder.Release(t.Context()), core.ErrLost)
		wantHeldLease(t, lease)
		release(t, lease)
		time.Sleep(time.Second)
		wantFree(t, store.inner, "order:1")
	})
	// Holds that cannot be passed on are released.
	sim(t, "released and not passed on", func(t *testing.T) {
		for name, o := range map[string][]core.AcquireOption{
			"fair": opts(core.Fair()), "shared": opts(core.Shared()), "permits": opts(core.Permits(1, 1)),
			"kept": opts(core.KeepFor(time.Second)), "several": opts(core.Also("order:2")), "not extended": opts(core.NoRenew()),
		} {
			events := &recorder{}
			l, _ := setup(t, core.WithObserver(events))
			cycles(t, l, 4, 5, time.Millisecond, o...)
			if n := len(events.all(core.PassedOn)); n != 0 {
				t.Errorf("%s: passed on %d times", name, n)
			}
		}
	})
	// The release of a nested lease does not pass on the hold of the outer lease.
	sim(t, "nested lease", func(t *testing.T) {
		l, store := setup(t)
		outer, got := next(t, l)
		inner := acquire(t, outer.Context(), l, "order:1")
		release(t, inner)
		select {
		case <-got:
			t.Error("the next one has the key")
		case <-time.After(time.Minute):
		}
		wantHeldLease(t, outer)
		inner = acquire(t, outer.Context(), l, "order:1")
		release(t, outer)
		select {
		case <-got:
			t.Error("the next one has the key")
		case <-time.After(time.Minute):
		}
		release(t, inner)
		release(t, <-got)
		wantFree(t, store.inner, "order:1")
	})
	// A Close while holds are passed on leaves no hold and no work behind.
	sim(t, "Close during passes", func(t *testing.T) {
		for range tally.AllTrials(200) {
			l, store := setup(t)
			store.setAll(jitter(5 * time.Millisecond))
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for {
						lease, err := l.Acquire(t.Context(), "order:1")
						if err != nil {
							wantErr(t, err, core.ErrClosed)
							return
						}
						time.Sleep(rand.N(time.Millisecond))
						release(t, lease)
					}
				})
			}
			time.Sleep(rand.N(100 * time.Millisecond))
			if err := l.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
			wg.Wait()
			store.setAll(nil)
			wantFree(t, store.inner, "order:1")
			if left := l.Left(); left != "" {
				t.Errorf("left is %s", left)
			}
		}
	})
	// If a waiter leaves while a hold is passed on to it, the waiter behind it gets the
	// key soon.
	sim(t, "waiter leaves during hand-off", func(t *testing.T) {
		events := &recorder{}
		l, store := setup(t, core.WithObserver(events))
		times, gone := tally.Trials(30_000), 0
		for range times {
			store.setAll(jitter(5 * time.Millisecond))
			holder := acquire(t, t.Context(), l, "order:1")
			ctx, cancel := context.WithCancel(t.Context())
			went := make(chan error, 1)
			go func() {
				lease, err := l.Acquire(ctx, "order:1")
				if err == nil {
					err = lease.Release(ctx)
				}
				went <- err
			}()
			got := make(chan time.Time, 1)
			go func() {
				lease, err := l.Acquire(t.Context(), "order:1")
				if err != nil {
					t.Error(err)
					return
				}
				got <- time.Now()
				release(t, lease)
			}()
			time.Sleep(time.Millisecond)
			start := time.Now()
			if rand.N(2) == 0 {
				go cancel()
				runtime.Gosched()
			} else {
				time.AfterFunc(rand.N(15*time.Millisecond), cancel)
			}
			release(t, holder)
			if err := <-went; err != nil {
				wantErr(t, err, context.Canceled)
				gone++
			}
			if took := (<-got).Sub(start); took > 100*time.Millisecond {
				t.Fatalf("the one behind had the key after %v", took)
			}
			cancel()
			time.Sleep(100 * time.Millisecond)
		}
		store.setAll(nil)
		wantFree(t, store.inner, "order:1")
		if n := len(events.all(core.PassedOn)); n < times/4 || gone < times/100 {
			t.Errorf("test setup: got %d passed on, %d that left", n, gone)
		}
	})
}
