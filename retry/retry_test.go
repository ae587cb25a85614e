package retry_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/retry"
)

var (
	errDown = errors.New("server is down")
	errRoof = errors.New("the roof is on fire")
	// steady has no jitter, so that virtual time is exact: 10, 20, 40, 40, … ms.
	steady = retry.Policy{Initial: 10 * ms, Max: 40 * ms, Multiplier: 2}
)

// calls is an operation. Its n-th run fails with the error that fail returns. It
// records the time of each run.
type calls struct {
	start time.Time
	at    []time.Duration
	fail  func(n int) error
}

func failing(fail func(n int) error) *calls { return &calls{start: time.Now(), fail: fail} }

func (c *calls) op(context.Context) (string, error) {
	c.at = append(c.at, time.Since(c.start))
	if err := c.fail(len(c.at)); err != nil {
		return "a value that no caller sees", err
	}
	return "done", nil
}

func always(err error) func(int) error { return func(int) error { return err } }

func matches(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("%q does not match %q", err, target)
		}
	}
}

// bubble runs fn as a subtest in virtual time.
func bubble(t *testing.T, name string, fn func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, fn)
	})
}

func TestDo(t *testing.T) {
	t.Parallel()
	bubble(t, "first success", func(t *testing.T) {
		c := failing(always(nil))
		v, err := retry.Do(t.Context(), retry.LockWait, c.op)
		if v != "done" || err != nil || time.Since(c.start) != 0 {
			t.Errorf("%q, %v after %v", v, err, time.Since(c.start))
		}
	})
	bubble(t, "growing pauses until success", func(t *testing.T) {
		c := failing(func(n int) error {
			if n < 5 {
				return errDown
			}
			return nil
		})
		v, err := retry.Do(t.Context(), steady, c.op)
		if v != "done" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		if got, want := fmt.Sprint(c.at), "[0s 10ms 30ms 70ms 110ms]"; got != want {
			t.Errorf("ran at %s, want %s", got, want)
		}
	})
	bubble(t, "attempts used up", func(t *testing.T) {
		c := failing(func(n int) error { return fmt.Errorf("failure %d", n) })
		v, err := retry.Do(t.Context(), retry.Policy{Initial: 10 * ms, Attempts: 3}, c.op)
		if v != "" || err == nil || err.Error() != "failure 3" || len(c.at) != 3 || time.Since(c.start) != 20*ms {
			t.Errorf("%q, %v, %d runs in %v", v, err, len(c.at), time.Since(c.start))
		}
	})
	bubble(t, "invalid policy", func(t *testing.T) {
		c := failing(always(nil))
		p := retry.Policy{Initial: time.Second, Max: ms}
		if _, err := retry.Do(t.Context(), p, c.op); err == nil || err.Error() != p.Validate().Error() || len(c.at) != 0 {
			t.Errorf("%v after %d runs", err, len(c.at))
		}
	})
}

func TestDo_Caller(t *testing.T) {
	t.Parallel()
	bubble(t, "operation gets the context", func(t *testing.T) {
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "here")
		v, err := retry.Do(ctx, retry.None, func(ctx context.Context) (any, error) { return ctx.Value(key{}), nil })
		if v != "here" || err != nil {
			t.Errorf("%v, %v", v, err)
		}
	})
	bubble(t, "panic passes through", func(t *testing.T) {
		defer func() {
			if p := recover(); p != errRoof {
				t.Errorf("recovered %v", p)
			}
		}()
		_, _ = retry.Do(t.Context(), retry.LockWait, func(context.Context) (int, error) { panic(errRoof) })
		t.Error("Do returned")
	})
	bubble(t, "many runs of one policy", func(t *testing.T) {
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				c := failing(func(n int) error {
					if n <= i%4 {
						return errDown
					}
					return nil
				})
				_, err := retry.Do(t.Context(), steady, c.op)
				if want := []time.Duration{0, 10 * ms, 30 * ms, 70 * ms}[i%4]; err != nil || time.Since(c.start) != want {
					t.Errorf("%v after %v, want %v", err, time.Since(c.start), want)
				}
			})
		}
		wg.Wait()
	})
}

func TestDo_Allocations(t *testing.T) {
	ctx := t.Context()
	op := func(context.Context) (int, error) { return 1, nil }
	if n := testing.AllocsPerRun(100, func() { _, _ = retry.Do(ctx, retry.Hiccup, op) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
