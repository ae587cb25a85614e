package calls_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/calls"
)

var errOwn = errors.New("own")

func TestDetached(t *testing.T) {
	t.Parallel()

	t.Run("outcome of the call", func(t *testing.T) {
		t.Parallel()
		got, left, err := calls.Detached(t.Context(), func() (int, error) { return 42, errOwn })
		if got != 42 || left || err != errOwn {
			t.Errorf("got %d, %v, %v", got, left, err)
		}
	})

	t.Run("exit of the goroutine", func(t *testing.T) {
		t.Parallel()
		got, left, err := calls.Detached(t.Context(), func() (int, error) {
			runtime.Goexit()
			return 42, nil
		})
		if got != 0 || left || err == nil {
			t.Errorf("got %d, %v, %v, want an error", got, left, err)
		}
	})

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

	t.Run("panic in the call", func(t *testing.T) {
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

func TestEither(t *testing.T) {
	t.Parallel()
	errOther := errors.New("other")
	const pause = 10 * time.Second
	never := time.Hour
	for _, c := range []struct {
		name          string
		first, second time.Duration // the moment at which the function returns
		firstErr      error
		secondErr     error
		stop, leave   bool // second calls stop; the caller leaves after 30 s
		want          int
		wantErr       error
		took          time.Duration
		released      int
	}{
		{name: "first at once", first: 1 * time.Second, second: never, want: 1, took: 1 * time.Second},
		{name: "error at once", first: 1 * time.Second, second: never, firstErr: errOwn, wantErr: errOwn, took: 1 * time.Second},
		{name: "first after the pause", first: 20 * time.Second, second: 25 * time.Second, want: 1, took: 20 * time.Second, released: 2},
		{name: "second before first", first: 25 * time.Second, second: 20 * time.Second, want: 2, took: 20 * time.Second},
		{name: "second after an error", first: 15 * time.Second, second: 20 * time.Second, firstErr: errOwn, want: 2, took: 20 * time.Second},
		{name: "first after an error", first: 20 * time.Second, second: 15 * time.Second, secondErr: errOther, want: 1, took: 20 * time.Second},
		{name: "two errors", first: 20 * time.Second, second: 15 * time.Second, firstErr: errOwn, secondErr: errOther, wantErr: errOwn, took: 20 * time.Second},
		{name: "stop before an answer", first: never, second: 20 * time.Second, stop: true, want: 2, took: 20 * time.Second},
		{name: "stop and an error", first: never, second: 20 * time.Second, secondErr: errOther, stop: true, wantErr: errOther, took: 20 * time.Second},
		{name: "caller leaves", first: never, second: 40 * time.Second, leave: true, wantErr: context.Canceled, took: 30 * time.Second, released: 2},
		{name: "caller leaves after stop", first: never, second: 40 * time.Second, stop: true, leave: true, wantErr: context.Canceled, took: 30 * time.Second, released: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if c.leave {
					time.AfterFunc(30*time.Second, leave)
				}
				begun, released := time.Now(), 0
				first := func(ctx context.Context) (int, error) {
					select {
					case <-time.After(c.first):
						return 1, c.firstErr
					case <-ctx.Done():
						return 0, ctx.Err()
					}
				}
				second := func(_ context.Context, stop func()) (int, error) {
					if c.stop {
						stop()
					}
					time.Sleep(c.second - time.Since(begun)) // even if its context is done
					return 2, c.secondErr
				}
				got, err := calls.Either(ctx, pause, first, second, func(value int) { released = value })
				if took := time.Since(begun); err != c.wantErr || err == nil && got != c.want || took != c.took {
					t.Errorf("after %v: got %d, %v, want %d, %v after %v", took, got, err, c.want, c.wantErr, c.took)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if released != c.released {
					t.Errorf("got %d released, want %d", released, c.released)
				}
			})
		})
	}

	t.Run("panic in one call", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := calls.Either(ctx, pause, func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, errOwn },
				func(_ context.Context, stop func()) (int, error) { stop(); panic("in a hook") }, func(int) {})
			if err == nil || !strings.Contains(err.Error(), "panic in the client: in a hook") {
				t.Errorf("got %v, want the panic", err)
			}
		})
	})
}
