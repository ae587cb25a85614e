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

	t.Run("an outcome is returned as it is", func(t *testing.T) {
		t.Parallel()
		got, left, err := calls.Detached(t.Context(), func() (int, error) { return 42, errOwn })
		if got != 42 || left || err != errOwn {
			t.Errorf("got %d, %v, %v", got, left, err)
		}
	})

	t.Run("a caller leaves when its context ends, and the work goes on", func(t *testing.T) {
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

	t.Run("the work runs even if the context has ended", func(t *testing.T) {
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

	t.Run("an outcome that is there when the context ends counts", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			for range 100 { // a select between two that are ready is a matter of luck
				ctx, cancel := context.WithCancel(t.Context())
				got, left, err := calls.Detached(atOnce{ctx, cancel}, func() (int, error) { return 42, nil })
				if got != 42 || left || err != nil {
					t.Fatalf("got %d, %v, %v", got, left, err)
				}
			}
		})
	})

	t.Run("a panic is an error", func(t *testing.T) {
		t.Parallel()
		_, left, err := calls.Detached(t.Context(), func() (int, error) { panic("in a hook") })
		if left || err == nil || !strings.Contains(err.Error(), "panic in the client: in a hook") {
			t.Errorf("got %v, %v", left, err)
		}
	})
}

// atOnce is a context that ends at the moment at which it is waited for, when everything
// else has come to rest.
type atOnce struct {
	context.Context
	cancel context.CancelFunc
}

func (c atOnce) Done() <-chan struct{} {
	synctest.Wait()
	c.cancel()
	return c.Context.Done()
}
