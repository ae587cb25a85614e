package core_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

// TestDo covers hazard 50 of PROOF.md.
func TestDo(t *testing.T) {
	t.Parallel()
	errFn := errors.New("card refused")
	// fn runs under the lease, and Do returns its error unchanged.
	sim(t, "result of fn", func(t *testing.T) {
		l, store := setup(t)
		for _, want := range []error{nil, errFn, &core.BusyError{Name: "other"}, core.ErrClosed} {
			err := l.Do(t.Context(), "order:1", func(ctx context.Context) error {
				wantHeld(t, store.inner, "order:1")
				if lease, ok := core.LeaseFromContext(ctx); !ok || lease.Key() != "order:1" {
					t.Error("the context has no lease")
				}
				return want
			})
			if err != want {
				t.Errorf("got %v, want %v itself", err, want)
			}
			wantFree(t, store.inner, "order:1")
		}
	})
	sim(t, "lock is busy", func(t *testing.T) {
		l, _ := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		wantErr(t, l.Do(t.Context(), "order:1", unreached(t), core.Wait(time.Second)), core.ErrBusy)
		release(t, lease)
	})
	// If fn panics, the key is released, and the panic continues.
	sim(t, "fn panics", func(t *testing.T) {
		l, store := setup(t)
		func() {
			defer func() {
				if got := recover(); got != "boom" {
					t.Errorf("recovered %v, want boom", got)
				}
			}()
			l.Do(t.Context(), "order:1", func(context.Context) error { panic("boom") })
		}()
		wantFree(t, store.inner, "order:1")
	})
	// If fn calls runtime.Goexit, the key is released, and the goroutine exits.
	sim(t, "fn calls Goexit", func(t *testing.T) {
		l, store := setup(t)
		ended := make(chan bool)
		go func() {
			defer close(ended)
			l.Do(t.Context(), "order:1", func(context.Context) error {
				runtime.Goexit()
				return nil
			})
			t.Error("Do returned")
		}()
		<-ended
		wantFree(t, store.inner, "order:1")
	})
	// If the lease is lost while fn runs, the error of Do matches ErrLost, whatever fn
	// returns.
	sim(t, "lease lost while fn ran", func(t *testing.T) {
		for _, want := range []error{nil, errFn, core.ErrBusy} {
			l, store := setup(t)
			store.set(hang, opExtend)
			err := l.Do(t.Context(), "order:1", func(ctx context.Context) error {
				<-ctx.Done()
				return want
			})
			wantErr(t, err, core.ErrLost)
			if want != nil {
				wantErr(t, err, want)
			}
		}
	})
	// If only the release finds the loss, the error of Do matches ErrLost too.
	sim(t, "release finds the loss", func(t *testing.T) {
		l, store := setup(t)
		err := l.Do(t.Context(), "order:1", func(context.Context) error {
			return store.inner.Release(t.Context(), store.sent(opAcquire)[0].claims[0])
		})
		wantErr(t, err, core.ErrLost)
	})
	// If the release is not confirmed, Do returns the result of fn unchanged.
	sim(t, "release not confirmed", func(t *testing.T) {
		seen := &recorder{}
		l, store := setup(t, core.WithObserver(seen))
		store.set(refuse, opRelease)
		if err := l.Do(t.Context(), "order:1", func(context.Context) error { return nil }); err != nil {
			t.Errorf("got %v, want nil", err)
		}
		if events := seen.all(core.Released); len(events) != 1 || !errors.Is(events[0].Err, core.ErrUnavailable) {
			t.Errorf("got events %+v", events)
		}
		store.set(nil, opRelease)
	})
	// Do releases the key of a caller whose context is done.
	sim(t, "caller goes away", func(t *testing.T) {
		l, store := setup(t)
		ctx, cancel := context.WithCancel(t.Context())
		err := l.Do(ctx, "order:1", func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		wantErr(t, err, context.Canceled)
		wantNot(t, err, core.ErrLost)
		wantFree(t, store.inner, "order:1")
	})
}

func TestGuard(t *testing.T) {
	t.Parallel()
	type order struct{ id int }
	key := func(o order) (string, error) {
		if o.id < 0 {
			return "", strconv.ErrRange
		}
		return core.Key("order", strconv.Itoa(o.id)), nil
	}
	// Guarded calls with one key run one at a time. Calls with different keys run
	// concurrently.
	sim(t, "one at a time per key", func(t *testing.T) {
		l, store := setup(t)
		var mu sync.Mutex
		charged := map[int]int{}
		charge := func(ctx context.Context, o order) (string, error) {
			mu.Lock()
			n := charged[o.id]
			mu.Unlock()
			// An unguarded read, modify and write would lose updates.
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			charged[o.id] = n + 1
			mu.Unlock()
			return "receipt " + strconv.Itoa(n+1), ctx.Err()
		}
		guarded := core.Guard(l, key, charge)
		elsewhere := core.Guard(newLocker(t, store.inner), key, charge)
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				call := guarded
				if i%2 == 0 {
					call = elsewhere
				}
				if receipt, err := call(t.Context(), order{i % 10}); err != nil || receipt == "" {
					t.Errorf("got %q, %v", receipt, err)
				}
			})
		}
		wg.Wait()
		for id := range 10 {
			if charged[id] != 10 {
				t.Errorf("order %d was charged %d times by 10 calls", id, charged[id])
			}
		}
		if d := time.Since(start); d > 200*time.Millisecond {
			t.Errorf("got all after %v: keys wait for each other", d)
		}
	})
	// The guarded function fails with the error of key, of the acquire or of fn, and
	// returns the result of fn.
	sim(t, "errors and result", func(t *testing.T) {
		l, store := setup(t)
		errFn := errors.New("card refused")
		ran := 0
		guarded := core.Guard(l, key, func(context.Context, order) (string, error) {
			ran++
			return "half", errFn
		}, core.Wait(0))
		if _, err := guarded(t.Context(), order{-1}); err != strconv.ErrRange {
			t.Errorf("got %v, want the key's error", err)
		}
		lease := acquire(t, t.Context(), newLocker(t, store.inner), "order:7")
		_, err := guarded(t.Context(), order{7})
		wantErr(t, err, core.ErrBusy)
		release(t, lease)
		if ran != 0 {
			t.Error("the function ran")
		}
		if got, err := guarded(t.Context(), order{7}); got != "half" || err != errFn {
			t.Errorf("got %q and %v", got, err)
		}
	})
	// If the lease is lost while fn runs, the error matches ErrLost. The guarded
	// function still returns the result of fn.
	sim(t, "lost while it ran", func(t *testing.T) {
		l, store := setup(t)
		store.set(hang, opExtend)
		guarded := core.Guard(l, key, func(ctx context.Context, _ order) (string, error) {
			<-ctx.Done()
			return "receipt", nil
		})
		got, err := guarded(t.Context(), order{1})
		if wantErr(t, err, core.ErrLost); got != "receipt" {
			t.Errorf("the answer is %q", got)
		}
	})
}
