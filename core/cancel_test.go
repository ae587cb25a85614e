package core_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
)

// jitter returns a fault in which the request and the reply each take a random time
// below d.
func jitter(d time.Duration) fault {
	return func(ctx context.Context, n int, do func() error) error {
		return slow(rand.N(d), rand.N(d))(ctx, n, do)
	}
}

// offset returns 0 in one of four calls, and otherwise a random duration from -around
// to around.
func offset(around time.Duration) time.Duration {
	if rand.N(4) == 0 {
		return 0
	}
	return rand.N(2*around) - around
}

// cancelOne starts two waiters. At about the time of the holder's release, one of them
// is canceled, or its core.Wait has passed if inTime is true. cancelOne returns the time
// from the release until the other waiter had the key.
func cancelOne(t *testing.T, holder *core.Lease, l *core.Locker, around time.Duration, inTime bool, o ...core.AcquireOption) time.Duration {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	release := 10*time.Millisecond + rand.N(2*time.Second) + around
	leaving, reason := o, context.Canceled
	if leave := release + offset(around); inTime {
		leaving, reason = append(slices.Clip(o), core.Wait(leave)), core.ErrBusy
	} else {
		time.AfterFunc(leave, cancel)
	}
	cancelled := make(chan struct{})
	go func() {
		defer close(cancelled)
		lease, err := l.Acquire(ctx, "order:1", leaving...)
		if err != nil {
			wantErr(t, err, reason)
		} else if err := lease.Release(ctx); err != nil {
			t.Errorf("Release: %v", err)
		}
	}()
	if rand.N(4) > 0 {
		synctest.Wait() // without this wait the other waiter may become the head
	}
	served := make(chan time.Time, 1)
	go func() {
		lease, err := l.Acquire(t.Context(), "order:1", o...)
		served <- time.Now()
		if err != nil {
			t.Errorf("the other waiter: %v", err)
			return
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
	}()
	time.Sleep(release)
	start := time.Now()
	if err := holder.Release(t.Context()); err != nil {
		t.Errorf("Release: %v", err)
	}
	took := (<-served).Sub(start)
	<-cancelled
	return took
}

// TestCancelledWaiter covers hazard 43 of PROOF.md.
func TestCancelledWaiter(t *testing.T) {
	t.Parallel()
	for name, fair := range map[string]bool{"": false, " among fair ones": true} {
		// If one waiter leaves at about the time of the release, the other waiter gets
		// the key soon.
		sim(t, "waiter leaves at release"+name, func(t *testing.T) {
			l, store := setup(t)
			other := newLocker(t, store.inner)
			o := opts(core.Name("order"))
			if fair {
				o = append(o, core.Fair())
			}
			for i := range tally.Trials(5000) {
				from := l // the process of the holder
				if i%2 == 0 {
					from = other
				}
				around := 5 * time.Millisecond
				if i%4 == 0 {
					around *= 4
				}
				if i%3 == 0 {
					store.setAll(nil)
				} else {
					store.setAll(jitter(around))
				}
				took := cancelOne(t, acquire(t, t.Context(), from, "order:1"), l, around, i%5 == 0, o...)
				if took > 20*around {
					t.Fatalf("round %d: the other waiter had the key after %v", i, took)
				}
				store.setAll(nil)
				time.Sleep(time.Second)
				wantFree(t, store.inner, "order:1")
				if left := l.Left(); left != "" {
					t.Fatalf("round %d: left is %s", i, left)
				}
			}
		})
	}
	sim(t, "waiter amid the line leaves", func(t *testing.T) {
		l, store := setup(t)
		holder := acquire(t, t.Context(), l, "order:1")
		var left []context.CancelFunc
		done := make(chan error, 100)
		for i := range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { done <- l.Do(ctx, "order:1", func(context.Context) error { return nil }) }()
			synctest.Wait()
			if i%3 != 0 {
				left = append(left, cancel)
			}
		}
		rand.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
		for _, cancel := range left {
			cancel()
			wantErr(t, <-done, core.ErrBusy, context.Canceled)
		}
		release(t, holder)
		for range 100 - len(left) {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		wantFree(t, store.inner, "order:1")
	})
	// A canceled claim leaves no hold at the store.
	sim(t, "claim canceled at any moment", func(t *testing.T) {
		l, store := setup(t)
		store.setAll(jitter(5 * time.Millisecond))
		for i := range tally.Trials(2000) {
			ctx, cancel := context.WithTimeout(t.Context(), rand.N(12*time.Millisecond))
			lease, err := l.Acquire(ctx, "order:1")
			if err == nil {
				release(t, lease)
			} else {
				wantErr(t, err, context.DeadlineExceeded)
			}
			cancel()
			time.Sleep(200 * time.Millisecond)
			if !isFree(store.inner, "order:1") {
				t.Fatalf("round %d: the key is held", i)
			}
		}
	})
}
