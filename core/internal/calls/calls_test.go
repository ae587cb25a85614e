package calls_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/calls"
)

var errOwn = errors.New("own")

func TestDetached(t *testing.T) {
	t.Parallel()

	// The outcome of the work is returned unchanged.
	t.Run("outcome", func(t *testing.T) {
		t.Parallel()
		got, left, err := calls.Detached(t.Context(), func() (int, error) { return 42, errOwn })
		if got != 42 || left || err != errOwn {
			t.Errorf("got %d, %v, %v", got, left, err)
		}
	})

	// If its context is done, a caller leaves, and the work continues.
	t.Run("caller leaves", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errOwn)
			defer cancel()
			begun, done := time.Now(), make(chan struct{})
			got, left, err := calls.Detached(ctx, func() (int, error) {
				time.Sleep(time.Minute)
				close(done)
				return 42, nil
			})
			if took := time.Since(begun); got != 0 || !left || err != errOwn || took != time.Second {
				t.Errorf("after %v: got %d, %v, %v", took, got, left, err)
			}
			<-done
		})
	})

	// The work runs even if the context is already done.
	t.Run("context done before", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ran := make(chan struct{})
		_, _, _ = calls.Detached(ctx, func() (int, error) {
			close(ran)
			return 42, nil
		})
		<-ran
	})

	// An outcome that is available when the context is done counts.
	t.Run("outcome with the context", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			for range 100 { // a select between two ready cases is random
				ctx, cancel := context.WithCancel(t.Context())
				got, left, err := calls.Detached(atOnce{ctx, cancel}, func() (int, error) { return 42, nil })
				if got != 42 || left || err != nil {
					t.Fatalf("got %d, %v, %v", got, left, err)
				}
			}
		})
	})

	t.Run("panic", func(t *testing.T) {
		t.Parallel()
		_, left, err := calls.Detached(t.Context(), func() (int, error) { panic("in a hook") })
		if left || err == nil || !strings.Contains(err.Error(), "panic in the client: in a hook") {
			t.Errorf("got %v, %v", left, err)
		}
	})
}

// atOnce is a context that becomes done when its Done method is called and all other
// goroutines are blocked.
type atOnce struct {
	context.Context
	cancel context.CancelFunc
}

func (c atOnce) Done() <-chan struct{} {
	synctest.Wait()
	c.cancel()
	return c.Context.Done()
}
