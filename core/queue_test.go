package core_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
)

// TestQueue covers hazard 41 of PROOF.md.
func TestQueue(t *testing.T) {
	t.Parallel()
	// 64 goroutines of a process get the key in order of arrival, one at a time.
	sim(t, "order of arrival", func(t *testing.T) {
		l, _ := setup(t)
		holder := acquire(t, t.Context(), l, "order:1")
		var served []int
		var inside atomic.Int32
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				err := l.Do(t.Context(), "order:1", func(context.Context) error {
					if inside.Add(1) != 1 {
						t.Error("two at once")
					}
					served = append(served, i)
					time.Sleep(10 * time.Millisecond)
					inside.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // this caller is in the queue before the next one comes
		}
		start := time.Now()
		release(t, holder)
		wg.Wait()
		if len(served) != 64 || !slices.IsSorted(served) {
			t.Errorf("served in the order %v", served)
		}
		if took := time.Since(start); took > 64*11*time.Millisecond {
			t.Errorf("64 holds of 10ms took %v", took)
		}
	})
	// A caller that releases the key and wants it again goes to the end of the queue.
	sim(t, "releaser goes to the tail", func(t *testing.T) {
		const callers, rounds = 64, 20
		l, _ := setup(t)
		var served []int
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for range rounds {
					lease, err := l.Acquire(t.Context(), "order:1")
					if err != nil {
						t.Error(err)
						return
					}
					served = append(served, i)
					time.Sleep(time.Millisecond)
					if err := lease.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if len(served) != callers*rounds {
			t.Fatalf("%d were served, want %d", len(served), callers*rounds)
		}
		for i, who := range served[callers:] {
			if served[i] != who {
				t.Fatalf("goroutine %d was served at turn %d, want %d", who, i+callers, served[i])
			}
		}
	})
	// Thousands of waiters for a held key together send less than one request a second,
	// and all of them get the key.
	sim(t, "thousands of waiters", func(t *testing.T) {
		l, store := setup(t)
		other := newLocker(t, store.inner)
		holder := acquire(t, t.Context(), other, "order:1")
		served := 0
		var wg sync.WaitGroup
		for range crowd {
			wg.Go(func() {
				err := l.Do(t.Context(), "order:1", func(context.Context) error {
					served++
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second)
		store.forget()
		time.Sleep(time.Minute)
		if n := store.count(); n > 32 || n < 26 {
			t.Errorf("%d calls in a minute, want about 29", n)
		}
		start := time.Now()
		release(t, holder)
		wg.Wait()
		if served != crowd {
			t.Errorf("%d were served, want %d", served, crowd)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("got all after %v, want no waiting in between", took)
		}
	})
	// A release wakes a waiter of another process, which does not have to poll.
	sim(t, "waiter of another process", func(t *testing.T) {
		l, store := setup(t)
		other := newLocker(t, store.inner)
		for range tally.AllTrials(100) {
			holder := acquire(t, t.Context(), other, "order:1")
			got := make(chan time.Time)
			go func() {
				lease, err := l.Acquire(t.Context(), "order:1")
				if err != nil {
					t.Error(err)
					return
				}
				got <- time.Now()
				lease.Release(t.Context())
			}()
			time.Sleep(123 * time.Millisecond)
			released := time.Now()
			release(t, holder)
			if d := (<-got).Sub(released); d != 0 {
				t.Fatalf("the waiter was served after %v", d)
			}
		}
	})
}

// crowdOf runs try n times concurrently. It returns the numbers of granted and busy
// tries, and the other errors.
func crowdOf(n int, try func() error) (granted, busy int, other []error) {
	errs := make(chan error, n)
	for range n {
		go func() { errs <- try() }()
	}
	for range n {
		switch err := <-errs; {
		case err == nil:
			granted++
		case errors.Is(err, core.ErrBusy):
			busy++
		default:
			other = append(other, err)
		}
	}
	return granted, busy, other
}

func TestTryAcquireInLine(t *testing.T) {
	t.Parallel()
	// While others wait, TryAcquire is refused at once, without a request.
	sim(t, "refused among waiters", func(t *testing.T) {
		l, store := setup(t)
		holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error)
		go func() {
			_, err := l.Acquire(ctx, "order:1")
			waited <- err
		}()
		time.Sleep(500 * time.Millisecond)
		store.forget()
		for _, o := range [][]core.AcquireOption{nil, opts(core.Shared()), opts(core.Wait(0))} {
			start := time.Now()
			_, err := l.TryAcquire(t.Context(), "order:1", o...)
			var busy *core.BusyError
			ok := errors.As(err, &busy)
			if !ok || time.Since(start) != 0 {
				t.Fatalf("got %v after %v, want a *BusyError at once", err, time.Since(start))
			}
			if busy.RetryAfter < 20*time.Second || busy.RetryAfter > 30*time.Second {
				t.Errorf("RetryAfter is %v, want what the holder has left", busy.RetryAfter)
			}
		}
		if n := store.count(); n != 0 {
			t.Errorf("%d calls were sent, want none", n)
		}
		cancel()
		wantErr(t, <-waited, core.ErrBusy, context.Canceled)
		release(t, holder)
	})
	for name, c := range map[string]struct {
		opts []core.AcquireOption
		want int
	}{
		"64 readers":             {opts(core.Shared()), 64},
		"64 of 64 permits":       {opts(core.Permits(1, 64)), 64},
		"two each of 64 permits": {opts(core.Permits(2, 64)), 32},
		"exclusive":              {nil, 1},
	} {
		sim(t, name, func(t *testing.T) {
			l, store := setup(t)
			store.set(slow(time.Millisecond, time.Millisecond), opAcquire)
			var mu sync.Mutex
			var leases []*core.Lease
			granted, busy, other := crowdOf(64, func() error {
				lease, err := l.TryAcquire(t.Context(), "order:1", c.opts...)
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					leases = append(leases, lease)
				}
				return err
			})
			if granted != c.want || busy != 64-c.want || other != nil {
				t.Errorf("%d granted, %d busy, other errors %v; want %d granted", granted, busy, other, c.want)
			}
			for _, lease := range leases {
				release(t, lease)
			}
			wantFree(t, store.inner, "order:1")
		})
	}
	// Callers of TryAcquire that arrive while the first caller asks share a busy
	// answer, without a round trip for each.
	sim(t, "shared answer", func(t *testing.T) {
		l, store := setup(t)
		holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
		store.set(slow(time.Millisecond, time.Millisecond), opAcquire)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Acquire(ctx, "order:1")
		synctest.Wait()
		start := time.Now()
		_, busy, _ := crowdOf(64, func() error {
			_, err := l.TryAcquire(t.Context(), "order:1")
			return err
		})
		if took := time.Since(start); busy != 64 || took > 10*time.Millisecond {
			t.Errorf("%d were busy, after %v; want 64 within two questions", busy, took)
		}
		cancel()
		release(t, holder)
	})
	for name, f := range map[string]fault{"hanging": hang, "refusing": refuse} {
		sim(t, name+" store", func(t *testing.T) {
			l, store := setup(t)
			store.set(f, opAcquire)
			start := time.Now()
			_, _, failed := crowdOf(64, func() error {
				_, err := l.TryAcquire(t.Context(), "order:1")
				return err
			})
			took := time.Since(start)
			if len(failed) != 64 {
				t.Errorf("%d failed, want 64", len(failed))
			}
			for _, err := range failed {
				wantErr(t, err, core.ErrUnavailable)
			}
			if took > 7*time.Second { // three attempts of two seconds each, and pauses
				t.Errorf("got all after %v", took)
			}
		})
	}
}
