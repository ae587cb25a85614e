package core_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
)

// knownDown is the error of a store whose server is known to be down.
type knownDown struct{}

func (knownDown) Error() string { return "connection refused" }

func (knownDown) Down() bool { return true }

// refuseAtOnce is the fault of a request that was not sent, because the server is known
// to be down.
func refuseAtOnce(context.Context, int, func() error) error {
	return fmt.Errorf("%w: %w", core.ErrUnavailable, knownDown{})
}

// TestKnownOutage covers hazard 23.
func TestKnownOutage(t *testing.T) {
	t.Parallel()
	// A store whose server is known to be down is asked only once, and Acquire returns
	// the store's error.
	sim(t, "asked once", func(t *testing.T) {
		for _, wait := range []time.Duration{0, time.Minute} {
			l, store := setup(t)
			store.set(refuseAtOnce, opAcquire)
			start := time.Now()
			_, err := l.Acquire(t.Context(), "order:1", core.Wait(wait))
			wantErr(t, err, core.ErrUnavailable)
			if n := store.count(opAcquire); n != 1 || time.Since(start) != 0 || !strings.Contains(err.Error(), "connection refused") {
				t.Errorf("asked %d times in %v: %v", n, time.Since(start), err)
			}
		}
	})
	// In a known outage, all callers behind the caller that asked get the same error at
	// once.
	sim(t, "queued callers", func(t *testing.T) {
		l, store := setup(t)
		store.set(func(ctx context.Context, n int, do func() error) error {
			time.Sleep(20 * time.Millisecond)
			return refuseAtOnce(ctx, n, do)
		}, opAcquire)
		start := time.Now()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				_, err := l.Acquire(t.Context(), "order:1", core.Wait(time.Minute))
				wantErr(t, err, core.ErrUnavailable)
			})
		}
		wg.Wait()
		if n, took := store.count(opAcquire), time.Since(start); n != 1 || took != 20*time.Millisecond {
			t.Errorf("asked %d times in %v", n, took)
		}
	})
	// The error of a caller that timed out also contains the text of the store's error.
	sim(t, "caller that timed out", func(t *testing.T) {
		l, store := setup(t)
		store.set(func(ctx context.Context, _ int, _ func() error) error {
			<-ctx.Done()
			return fmt.Errorf("%w: %w: connection refused", core.ErrUnavailable, context.Cause(ctx))
		}, opAcquire)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := l.Acquire(ctx, "order:1")
		wantErr(t, err, core.ErrUnavailable, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("got %v", err)
		}
	})
	// In a known outage, held leases are still released and extended.
	sim(t, "release and extension", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		store.set(refuseAtOnce, opAcquire)
		store.set(first(2, refuseAtOnce), opExtend, opRelease)
		if err := lease.Extend(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
		release(t, lease)
		synctest.Wait()
		wantFree(t, store.inner, "order:1")
	})
}
