package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/retry"
)

func TestStop(t *testing.T) {
	t.Parallel()
	bubble(t, "run ends with the error itself", func(t *testing.T) {
		c := failing(always(retry.Stop(io.EOF)))
		v, err := retry.Do(t.Context(), retry.LockWait, c.op)
		if v != "" || err != io.EOF || len(c.at) != 1 || time.Since(c.start) != 0 {
			t.Errorf("%q, %v, %d runs in %v", v, err, len(c.at), time.Since(c.start))
		}
	})
	bubble(t, "mark inside of other errors", func(t *testing.T) {
		for _, marked := range []error{
			fmt.Errorf("open: %w", retry.Stop(io.EOF)),
			errors.Join(errDown, retry.Stop(io.EOF)),
			retry.Stop(fmt.Errorf("open: %w", retry.Stop(io.EOF))),
			retry.After(time.Hour, retry.Stop(io.EOF)),
			retry.Stop(retry.After(time.Hour, io.EOF)),
		} {
			c := failing(always(marked))
			_, err := retry.Do(t.Context(), steady, c.op)
			if err.Error() != marked.Error() || len(c.at) != 1 {
				t.Errorf("%q after %d runs, want %q", err, len(c.at), marked)
			}
			matches(t, err, io.EOF)
		}
	})
	t.Run("mark outside of a Do", func(t *testing.T) {
		t.Parallel()
		for _, err := range []error{retry.Stop(&timeoutError{}), retry.After(ms, &timeoutError{})} {
			var te *timeoutError
			if !errors.As(err, &te) || !errors.Is(err, te) || err.Error() != te.Error() {
				t.Errorf("%v hides what it marks", err)
			}
		}
		if retry.Stop(nil) != nil || retry.After(ms, nil) != nil {
			t.Error("a marked nil is an error")
		}
	})
}

func TestMarks_EndWithDo(t *testing.T) {
	t.Parallel()
	bubble(t, "mark of an inner Do", func(t *testing.T) {
		for name, inner := range map[string]func(context.Context) (string, error){
			"outermost": failing(always(retry.Stop(errDown))).op,
			"wrapped":   failing(always(fmt.Errorf("inner: %w", retry.Stop(errDown)))).op,
			"joined":    failing(always(errors.Join(io.EOF, retry.Stop(errDown)))).op,
			"after":     failing(always(fmt.Errorf("inner: %w", retry.After(time.Hour, errDown)))).op,
		} {
			var runs int
			start := time.Now()
			_, err := retry.Do(t.Context(), retry.Policy{Initial: ms, Attempts: 3}, func(ctx context.Context) (string, error) {
				runs++
				v, err := retry.Do(ctx, retry.None, inner)
				return v, fmt.Errorf("outer: %w", err)
			})
			if runs != 3 || time.Since(start) != 2*ms || !strings.HasPrefix(err.Error(), "outer: ") {
				t.Errorf("%s: %v after %d runs in %v", name, err, runs, time.Since(start))
			}
			matches(t, err, errDown)
		}
	})
	bubble(t, "mark in a cause", func(t *testing.T) {
		for _, cause := range []error{retry.Stop(errDown), fmt.Errorf("group: %w, %w", context.Canceled, retry.Stop(errDown))} {
			ended, end := context.WithCancelCause(t.Context())
			end(cause)
			var runs int
			_, err := retry.Do(t.Context(), retry.Policy{Initial: ms, Attempts: 3}, func(context.Context) (string, error) {
				runs++
				return retry.Do(ended, retry.None, failing(always(nil)).op)
			})
			if runs != 3 {
				t.Errorf("%v after %d runs", err, runs)
			}
			matches(t, err, context.Canceled, cause, errDown)
		}
	})
}

type timeoutError struct{}

func (*timeoutError) Error() string { return "timeout" }

func TestAfter(t *testing.T) {
	t.Parallel()
	once := func(hint time.Duration) *calls {
		return failing(func(n int) error {
			if n == 1 {
				return fmt.Errorf("busy: %w", retry.After(hint, errDown))
			}
			return nil
		})
	}
	for _, c := range []struct {
		name      string
		policy    retry.Policy
		hint      time.Duration
		low, high time.Duration
	}{
		{"hint above Max", steady, time.Minute, time.Minute, time.Minute},
		{"jitter only lengthens a hint", retry.Policy{Initial: ms, Jitter: 0.5}, time.Second, time.Second, 1500 * ms},
		{"hint does not shorten the pause", steady, ms, 10 * ms, 10 * ms},
		{"hint of zero", steady, 0, 10 * ms, 10 * ms},
		{"negative hint", steady, -time.Hour, 10 * ms, 10 * ms},
	} {
		bubble(t, c.name, func(t *testing.T) {
			for range 100 {
				op := once(c.hint)
				if _, err := retry.Do(t.Context(), c.policy, op.op); err != nil || len(op.at) != 2 || op.at[1] < c.low || op.at[1] > c.high {
					t.Fatalf("%v, ran at %v, want %v to %v", err, op.at, c.low, c.high)
				}
			}
		})
	}
	bubble(t, "hint for the next attempt only", func(t *testing.T) {
		c := failing(func(n int) error { return []error{retry.After(time.Second, errDown), errDown, nil}[n-1] })
		_, err := retry.Do(t.Context(), steady, c.op)
		if got, want := fmt.Sprint(c.at), "[0s 1s 1.02s]"; err != nil || got != want {
			t.Errorf("%v, ran at %s, want %s", err, got, want)
		}
	})
	bubble(t, "hint grants no attempt", func(t *testing.T) {
		c := failing(always(retry.After(time.Second, io.EOF)))
		_, err := retry.Do(t.Context(), retry.Policy{Initial: ms, Attempts: 2}, c.op)
		if err != io.EOF || len(c.at) != 2 || time.Since(c.start) != time.Second {
			t.Errorf("%v, %d runs in %v", err, len(c.at), time.Since(c.start))
		}
	})
	bubble(t, "hint beyond the deadline", func(t *testing.T) {
		for _, hint := range []time.Duration{time.Minute, 1<<63 - 1} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			c := failing(always(retry.After(hint, errDown)))
			_, err := retry.Do(ctx, retry.LockWait, c.op)
			if len(c.at) != 1 || time.Since(c.start) != 0 {
				t.Errorf("%d runs in %v", len(c.at), time.Since(c.start))
			}
			matches(t, err, errDown, context.DeadlineExceeded)
			cancel()
		}
	})
	bubble(t, "longest hint counts", func(t *testing.T) {
		c := failing(func(n int) error {
			return []error{errors.Join(retry.After(time.Second, errDown), retry.After(time.Minute, retry.After(ms, io.EOF))), nil}[n-1]
		})
		if _, err := retry.Do(t.Context(), steady, c.op); err != nil || time.Since(c.start) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(c.start))
		}
	})
}
