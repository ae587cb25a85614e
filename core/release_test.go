package core_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
)

// TestRelease_ManyKeys covers hazard 11. The number of keys is only 61, because several
// hundred timers at one moment of virtual time crash the race detector
// (https://go.dev/issue/78156).
func TestRelease_ManyKeys(t *testing.T) {
	t.Parallel()
	keys := func(n int) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprintf("order:%03d", i))
		}
		return names
	}
	for _, trip := range []time.Duration{6 * time.Millisecond, 16 * time.Millisecond, 150 * time.Millisecond} {
		sim(t, fmt.Sprintf("61 keys at %v a trip", trip), func(t *testing.T) {
			l, store := setup(t)
			lease := acquire(t, t.Context(), l, "order", core.Also(keys(60)...), core.TTL(time.Second))
			store.set(slow(trip, 0), opRelease)
			time.Sleep(time.Second / 2) // so that the last extension was some time ago
			start := time.Now()
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("got %v, want nil", err)
			}
			if took := time.Since(start); took != trip {
				t.Errorf("got %v for all keys, want one trip", took)
			}
			wantFree(t, store.inner, keys(60)...)
		})
	}
	for _, also := range [][]string{nil, keys(60)} {
		sim(t, fmt.Sprintf("%d keys expire meanwhile", 1+len(also)), func(t *testing.T) {
			l, store := setup(t)
			lease := acquire(t, t.Context(), l, "order", core.Also(also...), core.TTL(time.Second), core.NoRenew())
			time.Sleep(940 * time.Millisecond)
			wantHeldLease(t, lease)
			store.set(slow(100*time.Millisecond, 0), opRelease)
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("got %v, want nil", err)
			}
			late := acquire(t, t.Context(), l, "order", core.TTL(time.Second), core.NoRenew())
			time.Sleep(960 * time.Millisecond)
			wantErr(t, late.Release(t.Context()), core.ErrLost)
		})
	}
	sim(t, "some keys unanswered", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order", core.Also(keys(4)...))
		store.set(func(ctx context.Context, n int, do func() error) error {
			if n%5 < 2 {
				return hang(ctx, n, do)
			}
			return do()
		}, opRelease)
		err := lease.Release(t.Context())
		wantErr(t, err, core.ErrUnavailable)
		if err != nil && !strings.Contains(err.Error(), " of 5 keys are not released yet") {
			t.Errorf("got %v, want the number of keys", err)
		}
		store.set(nil, opRelease)
		time.Sleep(time.Second)
		wantFree(t, store.inner, keys(4)...)
	})
	sim(t, "one key lost", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order", core.Also(keys(4)...))
		store.set(func(_ context.Context, n int, do func() error) error {
			return cmp.Or(do(), map[bool]error{true: core.ErrLost}[n == 2])
		}, opRelease)
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
		wantFree(t, store.inner, keys(4)...)
	})
}

// TestDo_ManyKeys checks the keys when Do returns. All keys are free, or the observer
// has been notified of the others.
func TestDo_ManyKeys(t *testing.T) {
	t.Parallel()
	also := []string{"order:2", "order:3", "order:4", "order:5"}
	all := append([]string{"order:1"}, also...)
	work := func(context.Context) error { return nil }
	sim(t, "slow releases", func(t *testing.T) {
		const trip = 150 * time.Millisecond
		l, store := setup(t)
		store.set(slow(trip, 0), opRelease)
		start := time.Now()
		if err := l.Do(t.Context(), "order:1", work, core.Also(also...)); err != nil {
			t.Errorf("got %v, want nil", err)
		}
		if took := time.Since(start); took != trip {
			t.Errorf("got %v for all keys, want one trip", took)
		}
		wantFree(t, store.inner, all...)
	})
	for _, hung := range []int{1, 2, 5} {
		sim(t, fmt.Sprintf("%d releases hang", hung), func(t *testing.T) {
			seen := &recorder{}
			l, store := setup(t, core.WithObserver(seen))
			store.set(func(ctx context.Context, n int, do func() error) error {
				if n <= hung || n > len(all) { // the retries also hang
					return hang(ctx, n, do)
				}
				return do()
			}, opRelease)
			start := time.Now()
			if err := l.Do(t.Context(), "order:1", work, core.Also(also...)); err != nil {
				t.Errorf("got %v, want the result of the work", err)
			}
			if took := time.Since(start); took > 3100*time.Millisecond {
				t.Errorf("Do returned after %v", took)
			}
			held := 0
			for _, key := range all {
				if !isFree(store.inner, key) {
					held++
				}
			}
			if held != hung {
				t.Errorf("got %d keys that are held, want %d", held, hung)
			}
			events := seen.all(core.Released)
			if len(events) != 1 || !errors.Is(events[0].Err, core.ErrUnavailable) ||
				!strings.Contains(events[0].Err.Error(), fmt.Sprintf("%d of %d keys are not released yet", hung, len(all))) {
				t.Errorf("got %+v, want one release with the number of held keys", events)
			}
			store.set(nil, opRelease)
			time.Sleep(2200 * time.Millisecond)
			wantFree(t, store.inner, all...)
			if n := len(seen.all(core.CleanedUp)); n != hung {
				t.Errorf("got %d clean-ups, want %d", n, hung)
			}
		})
	}
}

// TestRelease covers hazards 11, 47 and 50 of PROOF.md.
func TestRelease(t *testing.T) {
	t.Parallel()
	// A release frees the key and cancels the context.
	sim(t, "key and context", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		wantHeld(t, store.inner, "order:1")
		release(t, lease)
		wantFree(t, store.inner, "order:1")
		if err := context.Cause(lease.Context()); err != context.Canceled {
			t.Errorf("got cause %v, want context.Canceled", err)
		}
		if lease.Deadline().After(time.Now()) {
			t.Error("the deadline of a released lease is still to come")
		}
	})
	// Second and concurrent releases return the result of the first.
	sim(t, "second and concurrent releases", func(t *testing.T) {
		for name, f := range map[string]fault{"": slow(time.Second, 0), "refused": refuse, "lost": func(context.Context, int, func() error) error {
			return core.ErrLost
		}} {
			l, store := setup(t)
			lease := acquire(t, t.Context(), l, "order:1")
			store.set(f, opRelease)
			errs := make([]error, 10)
			var wg sync.WaitGroup
			for i := range 9 {
				wg.Go(func() { errs[i] = lease.Release(t.Context()) })
			}
			wg.Wait()
			sent := store.count(opRelease)
			errs[9] = lease.Release(t.Context())
			for _, err := range errs {
				if err != errs[0] {
					t.Errorf("%s: got %v and %v", name, errs[0], err)
				}
			}
			if store.count(opRelease) != sent {
				t.Errorf("%s: the second release was sent", name)
			}
			if name == "" && (errs[0] != nil || sent != 1) {
				t.Errorf("got %v from %d releases, want one and no error", errs[0], sent)
			}
			store.set(nil, opRelease)
		}
	})
	sim(t, "canceled context", func(t *testing.T) {
		l, store := setup(t)
		ctx, cancel := context.WithCancel(t.Context())
		lease := acquire(t, ctx, l, "order:1")
		cancel()
		if err := lease.Release(ctx); err != nil {
			t.Errorf("Release: %v", err)
		}
		wantFree(t, store.inner, "order:1")
	})
	for name, f := range map[string]fault{"lost": loseReply, "hanging": hangAfter} {
		sim(t, name+" reply", func(t *testing.T) {
			seen := &recorder{}
			l, store := setup(t, core.WithObserver(seen))
			lease := acquire(t, t.Context(), l, "order:1")
			store.set(first(1, f), opRelease)
			release(t, lease)
			wantFree(t, store.inner, "order:1")
			if events := seen.all(core.Released); len(events) != 1 || events[0].Err != nil {
				t.Errorf("got %+v, want one release without error", events)
			}
			if n := store.count(opRelease); n != 2 {
				t.Errorf("%d releases, want 2", n)
			}
		})
	}
	// If the store first refuses a release as unavailable and then answers "lost", the
	// release reports a loss.
	sim(t, "refused then unknown", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		store.set(func(ctx context.Context, n int, do func() error) error {
			if n == 1 {
				return refuse(ctx, n, do)
			}
			return core.ErrLost
		}, opRelease)
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
	})
	// If the store no longer has the hold, the release reports a loss.
	sim(t, "forgotten by the store", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		claim := store.sent(opAcquire)[0].claims[0]
		if err := store.inner.Release(t.Context(), claim); err != nil { // an operator
			t.Fatal(err)
		}
		err := lease.Release(t.Context())
		wantErr(t, err, core.ErrLost)
		wantNot(t, err, core.ErrUnavailable)
	})
	// If the store hangs, a release returns within its time limit. The lease is
	// released in this process at once, and at the store in the background.
	sim(t, "hung store", func(t *testing.T) {
		for _, keys := range [][]string{nil, {"order:2", "order:3", "order:4", "order:5"}} {
			seen := &recorder{}
			l, store := setup(t, core.WithObserver(seen))
			lease := acquire(t, t.Context(), l, "order:1", core.Also(keys...))
			store.setAll(hang)
			time.AfterFunc(time.Millisecond, func() {
				if lease.Context().Err() == nil {
					t.Error("got a lease that is held while it is being released")
				}
			})
			start := time.Now()
			err := lease.Release(t.Context())
			wantErr(t, err, core.ErrUnavailable)
			wantNot(t, err, core.ErrLost)
			if d := time.Since(start); d > 3100*time.Millisecond {
				t.Errorf("releasing %d keys took %v", len(keys)+1, d)
			}
			if n := store.count(opExtend); n != 0 {
				t.Errorf("%d extensions during the release", n)
			}
			time.Sleep(5 * time.Second)
			wantHeld(t, store.inner, append(keys, "order:1")...)
			store.setAll(nil)
			time.Sleep(2200 * time.Millisecond)
			wantFree(t, store.inner, append(keys, "order:1")...)
			if events := seen.all(core.CleanedUp); len(events) != len(keys)+1 {
				t.Errorf("got %d clean-ups, want %d", len(events), len(keys)+1)
			}
		}
	})
	// After a long Extend, a lease is released even if an outage is longer than the
	// lease's TTL.
	sim(t, "long Extend in an outage", func(t *testing.T) {
		for _, f := range []fault{nil, loseReply} {
			l, store := setup(t)
			lease := acquire(t, t.Context(), l, "order:1", core.TTL(10*time.Second), core.Also("order:2"))
			store.set(f, opExtend)
			err := lease.Extend(t.Context(), time.Hour)
			if f == nil && err != nil || f != nil && !errors.Is(err, core.ErrUnavailable) {
				t.Fatal(err)
			}
			store.setAll(hang)
			wantErr(t, lease.Release(t.Context()), core.ErrUnavailable)
			time.Sleep(10 * time.Minute)
			wantHeld(t, store.inner, "order:1", "order:2")
			store.setAll(nil)
			time.Sleep(2200 * time.Millisecond)
			wantFree(t, store.inner, "order:1", "order:2")
		}
	})
	// A waiter of this process gets the key soon even if the reply to the release
	// hangs.
	sim(t, "waiter behind a hung release", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		store.set(hangAfter, opRelease)
		got := make(chan time.Time)
		go func() {
			lease, err := l.Acquire(t.Context(), "order:1")
			if err != nil {
				t.Error(err)
				return
			}
			got <- time.Now()
			store.set(nil, opRelease)
			release(t, lease)
		}()
		synctest.Wait()
		start := time.Now()
		go lease.Release(t.Context())
		if d := (<-got).Sub(start); d > 10*time.Millisecond {
			t.Errorf("the waiter was served after %v", d)
		}
	})
	// The release of a lost lease does not affect the next lease of the key.
	sim(t, "next lease of the key", func(t *testing.T) {
		l, store := setup(t)
		old := acquire(t, t.Context(), l, "order:1", core.NoRenew(), core.TTL(time.Second))
		lossTime(t, old)
		time.Sleep(100 * time.Millisecond)
		next := acquire(t, t.Context(), l, "order:1")
		wantErr(t, old.Release(t.Context()), core.ErrLost)
		time.Sleep(time.Minute)
		wantHeldLease(t, next)
		wantHeld(t, store.inner, "order:1")
		release(t, next)
	})
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	// Errors name the operation and the lock, and contain "unavailable" only once.
	sim(t, "operation and lock and cause", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:secret", core.Name("pay"))
		store.setAll(refuse)
		_, err := l.Acquire(t.Context(), "order:2", core.Name("pay"))
		for want, err := range map[string]error{
			`core: acquire "pay": lockkit: lock store unavailable: connection refused`: err,
			`core: extend "pay": lockkit: lock store unavailable: connection refused`:  lease.Extend(t.Context(), time.Minute),
			`core: release "pay": lockkit: lock store unavailable: connection refused`: lease.Release(t.Context()),
		} {
			if err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		}
		store.setAll(loseRequest)
		_, err = l.Acquire(t.Context(), "order:2", core.Name("pay"))
		if want := `core: acquire "pay": lockkit: lock store unavailable: connection broken`; err == nil || err.Error() != want || !errors.Is(err, errBroken) {
			t.Errorf("got %v, want %s", err, want)
		}
		store.setAll(func(ctx context.Context, _ int, _ func() error) error {
			<-ctx.Done()
			return fmt.Errorf("flaky: acquire: %w: no answer", core.ErrUnavailable)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.Acquire(ctx, "order:3", core.Name("pay"))
		if want := `core: acquire "pay": lockkit: lock store unavailable: context deadline exceeded: flaky: acquire: no answer`; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		store.setAll(nil)
	})
}
