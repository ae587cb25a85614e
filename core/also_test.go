package core_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

func TestAlso(t *testing.T) {
	t.Parallel()
	sim(t, "sorted and released", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "b", core.Also("d", "a", "b"), core.Also("c", "a"))
		var keys []string
		for _, c := range store.sent(opAcquire) {
			keys = append(keys, c.claims[0].Key)
		}
		if !slices.Equal(keys, []string{"a", "b", "c", "d"}) {
			t.Errorf("got order %v, want a sorted one", keys)
		}
		if lease.Key() != "b" || lease.Owner() == "" {
			t.Errorf("got key %s, want b with an owner", lease.Key())
		}
		time.Sleep(time.Hour)
		wantHeldLease(t, lease)
		wantHeld(t, store.inner, keys...)
		tokens := map[uint64]bool{}
		for _, key := range keys {
			tokens[lease.TokenOf(key)] = true
		}
		if tokens[0] || lease.Token() != lease.TokenOf("b") || lease.TokenOf("e") != 0 {
			t.Errorf("tokens %v, of b %d, of another key %d", tokens, lease.Token(), lease.TokenOf("e"))
		}
		release(t, lease)
		wantFree(t, store.inner, keys...)
	})
	// If a later key is busy, the earlier keys are free before Acquire returns the
	// error.
	sim(t, "later key busy", func(t *testing.T) {
		l, store := setup(t)
		holder := acquire(t, t.Context(), newLocker(t, store.inner), "b")
		for _, wait := range []time.Duration{0, 3 * time.Second} {
			_, err := l.Acquire(t.Context(), "c", core.Also("a", "b"), core.Wait(wait))
			var busy *core.BusyError
			ok := errors.As(err, &busy)
			if !ok || busy.Key != "b" || busy.Name != "lock" || busy.RetryAfter == 0 {
				t.Errorf("got %#v, want that b is busy", err)
			}
			wantFree(t, store.inner, "a", "c")
		}
		release(t, holder)
	})
	sim(t, "first extended while second waits", func(t *testing.T) {
		l, store := setup(t)
		holder := acquire(t, t.Context(), newLocker(t, store.inner), "b")
		got := make(chan *core.Lease)
		go func() {
			lease, err := l.Acquire(t.Context(), "a", core.Also("b"))
			if err != nil {
				t.Error(err)
			}
			got <- lease
		}()
		time.Sleep(10 * time.Minute)
		wantHeld(t, store.inner, "a")
		release(t, holder)
		lease := <-got
		wantHeldLease(t, lease)
		release(t, lease)
	})
	sim(t, "first lost while second waits", func(t *testing.T) {
		l, store := setup(t)
		holder := acquire(t, t.Context(), newLocker(t, store.inner), "b")
		for _, behind := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			if behind { // another waiter of this process is before the acquire
				go l.Acquire(ctx, "b")
			}
			store.set(func(context.Context, int, func() error) error { return core.ErrLost }, opExtend)
			start := time.Now()
			_, err := l.Acquire(t.Context(), "a", core.Also("b"))
			wantErr(t, err, core.ErrLost)
			wantNot(t, err, core.ErrBusy, core.ErrUnavailable)
			if d := time.Since(start); d > 10*time.Second {
				t.Errorf("got an end of the wait after %v", d)
			}
			store.set(nil, opExtend)
			wantFree(t, store.inner, "a")
			cancel()
		}
		wantHeldLease(t, holder)
		release(t, holder)
	})
	// If ctx is done while Acquire waits for the second key, the first key becomes
	// free.
	sim(t, "ctx done while second waits", func(t *testing.T) {
		l, store := setup(t)
		holder := acquire(t, t.Context(), newLocker(t, store.inner), "b")
		store.set(slow(time.Second, 0), opRelease)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		until, _ := ctx.Deadline()
		_, err := l.Acquire(ctx, "a", core.Also("b"))
		wantErr(t, err, core.ErrBusy, context.DeadlineExceeded)
		if d := time.Since(until); d != 0 {
			t.Errorf("got a return %v late", d)
		}
		time.Sleep(1100 * time.Millisecond)
		wantFree(t, store.inner, "a")
		release(t, holder)
	})
	// A busy answer for an earlier key, which was then granted, says nothing about a
	// later key without an answer.
	sim(t, "ctx done while second is unanswered", func(t *testing.T) {
		for _, earlierBusy := range []bool{false, true} {
			seen := &recorder{}
			l, store := setup(t, core.WithObserver(seen))
			if earlierBusy {
				holder := acquire(t, t.Context(), newLocker(t, store.inner), "a")
				time.AfterFunc(time.Second, func() { _ = holder.Release(context.Background()) })
			}
			store.set(func(ctx context.Context, n int, do func() error) error {
				if sent := store.sent(opAcquire); sent[len(sent)-1].claims[0].Key == "b" {
					return hang(ctx, n, do)
				}
				return do()
			}, opAcquire)
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			_, err := l.Acquire(ctx, "a", core.Also("b"))
			cancel()
			wantErr(t, err, core.ErrUnavailable, context.DeadlineExceeded)
			wantNot(t, err, core.ErrBusy)
			if gaveUp := seen.all(core.GaveUp); len(gaveUp) != 1 || gaveUp[0].Contended != earlierBusy {
				t.Errorf("a busy %t: got events %+v, want Contended of a", earlierBusy, gaveUp)
			}
			time.Sleep(time.Minute)
			wantFree(t, store.inner, "a", "b")
		}
	})
	sim(t, "many orders without deadlock", func(t *testing.T) {
		l, store := setup(t)
		lockers := []*core.Locker{l, newLocker(t, store.inner), newLocker(t, store.inner)}
		var inside [5]atomic.Int32
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				order := rand.Perm(5)[:2+i%3]
				var keys []string
				for _, k := range order {
					keys = append(keys, fmt.Sprint("account:", k))
				}
				err := lockers[i%3].Do(t.Context(), keys[0], func(context.Context) error {
					for _, k := range order {
						if inside[k].Add(1) != 1 {
							t.Errorf("two have account:%d", k)
						}
					}
					time.Sleep(10 * time.Millisecond)
					for _, k := range order {
						inside[k].Add(-1)
					}
					return nil
				}, core.Also(keys[1:]...))
				if err != nil {
					t.Error(err)
				}
			})
		}
		start := time.Now()
		wg.Wait()
		if d := time.Since(start); d > time.Minute {
			t.Errorf("got all after %v", d)
		}
	})
	// If one key is lost, the lease is lost, and the other keys are released.
	sim(t, "one key lost", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "a", core.Also("b", "c"))
		claim := store.sent(opAcquire)[1].claims[0]
		if err := store.inner.Release(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if d := lossTime(t, lease).Sub(start); d > 10*time.Second {
			t.Errorf("got the loss after %v, want it at the next extension", d)
		}
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
		time.Sleep(time.Millisecond)
		wantFree(t, store.inner, "a", "b", "c")
	})
	// If the release finds that one key is gone, it reports the loss and releases the
	// other keys.
	sim(t, "release finds one key gone", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "a", core.Also("b", "c"))
		if err := store.inner.Release(t.Context(), store.sent(opAcquire)[1].claims[0]); err != nil {
			t.Fatal(err)
		}
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
		wantFree(t, store.inner, "a", "b", "c")
	})
	// Extend sends one call for all keys. The key whose validity ends first determines
	// the trust.
	sim(t, "Extend extends all keys", func(t *testing.T) {
		l, store := setup(t)
		store.set(slow(0, time.Second), opAcquire)
		start := time.Now()
		lease := acquire(t, t.Context(), l, "a", core.Also("b", "c"), core.NoRenew())
		if d := lease.Deadline().Sub(start); d != core.Trust(30*time.Second) {
			t.Errorf("trusted until %v after the first attempt, want %v", d, core.Trust(30*time.Second))
		}
		if err := lease.Extend(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		if d := time.Until(lease.Deadline()); d != core.Trust(time.Minute) {
			t.Errorf("trusted for %v", d)
		}
		if n := store.count(opExtend); n != 1 {
			t.Errorf("%d calls, want one for all keys", n)
		}
		release(t, lease)
	})
	// An acquire of two keys, under a lease of one of them, re-enters that key and
	// acquires the other.
	sim(t, "one of several keys held", func(t *testing.T) {
		l, store := setup(t)
		outer := acquire(t, t.Context(), l, "b")
		both := acquire(t, outer.Context(), l, "a", core.Also("b"))
		if both.TokenOf("b") != outer.Token() {
			t.Error("b was not re-entered")
		}
		release(t, both)
		wantFree(t, store.inner, "a")
		wantHeld(t, store.inner, "b")
		release(t, outer)
	})
}
