package core_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
)

var errShutdown = errors.New("shutdown timed out")

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), d, errShutdown)
	t.Cleanup(cancel)
	return ctx
}

// TestClose covers hazard 49 of PROOF.md.
func TestClose(t *testing.T) {
	t.Parallel()
	// Without leases, Close returns at once, even if its context is done.
	sim(t, "no leases", func(t *testing.T) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 {
			l, _ := setup(t)
			for range 2 {
				if err := l.Close(ended); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	// After the begin of Close, an acquire fails with ErrClosed and sends nothing.
	sim(t, "acquire after Close", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		closed := make(chan error)
		go func() { closed <- l.Close(t.Context()) }()
		synctest.Wait()
		store.forget()
		_, err := l.Acquire(t.Context(), "order:2")
		_, errTry := l.TryAcquire(t.Context(), "order:2")
		_, errNested := l.Acquire(lease.Context(), "order:1")
		for _, err := range []error{err, errTry, errNested, l.Do(t.Context(), "order:2", unreached(t))} {
			wantErr(t, err, core.ErrClosed)
			wantNot(t, err, core.ErrBusy, core.ErrUnavailable)
		}
		if n := store.count(); n != 0 {
			t.Errorf("%d calls were sent, want none", n)
		}
		wantHeldLease(t, lease)
		release(t, lease)
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
	// Close waits for the held leases, which are extended in the meantime.
	sim(t, "waits and extends", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		time.AfterFunc(time.Hour, func() {
			wantHeldLease(t, lease)
			wantHeld(t, store.inner, "order:1")
			release(t, lease)
		})
		start := time.Now()
		if err := l.Close(t.Context()); err != nil || time.Since(start) != time.Hour {
			t.Errorf("got %v after %v, want nil after an hour", err, time.Since(start))
		}
	})
	sim(t, "waiters get ErrClosed", func(t *testing.T) {
		l, store := setup(t)
		holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
		errs := make(chan error)
		for i := range 20 {
			go func() {
				_, err := l.Acquire(t.Context(), "order:1", opts(core.Fair(), core.Also("a:1"))[i%2])
				errs <- err
			}()
		}
		time.Sleep(10 * time.Second)
		store.forget()
		start := time.Now()
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if n := store.count(opAcquire, opWatch); n != 0 {
			t.Errorf("%d questions after Close", n)
		}
		for range 20 {
			err := <-errs
			wantErr(t, err, core.ErrClosed)
			wantNot(t, err, core.ErrBusy)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("got their errors after %v", d)
		}
		release(t, holder)
		wantFree(t, store.inner, "order:1", "a:1")
	})
	// If ctx is done, the contexts of the remaining leases are canceled with ErrClosed.
	// The keys of these leases are free when Close returns.
	sim(t, "ctx done with leases left", func(t *testing.T) {
		l, store := setup(t)
		store.set(slow(100*time.Millisecond, 100*time.Millisecond), opRelease)
		var leases []*core.Lease
		for i := range 100 {
			leases = append(leases, acquire(t, t.Context(), l, fmt.Sprint("order:", i)))
		}
		start := time.Now()
		err := l.Close(within(t, 5*time.Second))
		wantErr(t, err, errShutdown)
		wantNot(t, err, core.ErrClosed)
		if d := time.Since(start); d > 5300*time.Millisecond {
			t.Errorf("Close took %v", d)
		}
		for _, lease := range leases {
			wantErr(t, context.Cause(lease.Context()), core.ErrClosed)
			wantFree(t, store.inner, lease.Key())
			release(t, lease) // returns the result of the release by Close
		}
		if err := l.Close(t.Context()); err != nil {
			t.Errorf("the second Close: %v", err)
		}
	})
	// If ctx is done and the store hangs, Close returns within its time limit.
	sim(t, "ctx done and store hangs", func(t *testing.T) {
		l, store := setup(t)
		leases := []*core.Lease{acquire(t, t.Context(), l, "order:1"), acquire(t, t.Context(), l, "order:2")}
		store.setAll(hang)
		go l.Acquire(t.Context(), "order:3")
		start := time.Now()
		wantErr(t, l.Close(within(t, time.Second)), errShutdown)
		if d := time.Since(start); d > 6100*time.Millisecond {
			t.Errorf("Close took %v", d)
		}
		store.setAll(nil)
		for _, lease := range leases {
			wantErr(t, context.Cause(lease.Context()), core.ErrClosed)
			wantErr(t, lease.Release(t.Context()), core.ErrUnavailable)
		}
		time.Sleep(3 * time.Second)
		wantFree(t, store.inner, "order:1", "order:2", "order:3")
	})
	// Even if ctx is done, Close waits for acquires in flight, for a limited time.
	sim(t, "ctx done during acquires", func(t *testing.T) {
		l, store := setup(t)
		store.set(slow(time.Second, 0), opAcquire, opRelease)
		ended := make(chan error, 1)
		go func() {
			_, err := l.Acquire(t.Context(), "order:1")
			ended <- err
		}()
		synctest.Wait()
		wantErr(t, l.Close(within(t, time.Millisecond)), errShutdown)
		synctest.Wait() // until the acquire has returned
		select {
		case err := <-ended:
			wantErr(t, err, core.ErrClosed)
		default:
			t.Error("got an acquire still in flight")
		}
		wantFree(t, store.inner, "order:1")
	})
	sim(t, "lost lease counts until released", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		store.set(hang, opExtend)
		lossTime(t, lease)
		wantErr(t, l.Close(within(t, time.Second)), errShutdown)
		wantErr(t, context.Cause(lease.Context()), core.ErrLost)
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
	})
	// An acquire in flight returns ErrClosed, or a lease for which Close waits.
	sim(t, "Close at any moment", func(t *testing.T) {
		leases, rounds := 0, tally.AllTrials(1000)
		for i := range rounds {
			l, store := setup(t)
			store.setAll(jitter(10 * time.Millisecond))
			if i%3 == 0 {
				store.set(first(1, loseReply), opAcquire)
			}
			released := make(chan bool)
			go func() {
				defer close(released)
				lease, err := l.Acquire(t.Context(), "order:1", core.Also("order:2"))
				if err != nil {
					wantErr(t, err, core.ErrClosed)
					return
				}
				leases++
				wantHeldLease(t, lease)
				time.Sleep(rand.N(10 * time.Millisecond))
				release(t, lease)
			}()
			time.Sleep(rand.N(60 * time.Millisecond))
			if err := l.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !isFree(store.inner, "order:1") || !isFree(store.inner, "order:2") || l.Left() != "" {
				t.Fatalf("round %d: a key is held after Close, or left is %q", i, l.Left())
			}
			<-released
		}
		if leases == 0 || leases == rounds {
			t.Errorf("%d of %d had a lease: the timing shows nothing", leases, rounds)
		}
	})
	// Close waits until claims of unknown outcome are cleaned up.
	sim(t, "waits for clean-ups", func(t *testing.T) {
		l, store := setup(t)
		store.set(hangAfter, opAcquire)
		store.set(refuse, opRelease)
		_, err := l.Acquire(within(t, time.Second), "order:1")
		wantErr(t, err, core.ErrUnavailable)
		wantErr(t, l.Close(within(t, time.Second)), errShutdown)
		time.AfterFunc(5*time.Second, func() { store.setAll(nil) })
		start := time.Now()
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d < 5*time.Second || d > 5200*time.Millisecond {
			t.Errorf("Close took %v", d)
		}
		wantFree(t, store.inner, "order:1")
	})
	// Close does not wait for an extension that hangs.
	sim(t, "extension hangs", func(t *testing.T) {
		l, store := setup(t)
		store.set(hang, opExtend)
		lease := acquire(t, t.Context(), l, "order:1")
		for store.count(opExtend) == 0 {
			time.Sleep(time.Millisecond)
		}
		release(t, lease)
		start := time.Now()
		if err := l.Close(t.Context()); err != nil || time.Since(start) != 0 {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
	// Concurrent calls of Close have the same result.
	sim(t, "several Closes at once", func(t *testing.T) {
		l, _ := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		errs := make(chan error)
		for range 5 {
			go func() { errs <- l.Close(t.Context()) }()
			go func() { errs <- l.Close(within(t, time.Hour)) }()
		}
		time.Sleep(time.Minute)
		release(t, lease)
		for range 10 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}
