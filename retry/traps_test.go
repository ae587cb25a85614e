package retry_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/lockkit/lockkit/retry"
)

// This file checks that Do avoids traps of github.com/cenkalti/backoff/v4.

func TestDo_Pace(t *testing.T) {
	t.Parallel()
	bubble(t, "zero fields are no hot loop", func(t *testing.T) {
		for fields := range 16 {
			var p retry.Policy
			if fields&1 != 0 {
				p.Initial = 5 * ms
			}
			if fields&2 != 0 {
				p.Max = 500 * ms
			}
			if fields&4 != 0 {
				p.Multiplier = 2
			}
			if fields&8 != 0 {
				p.Jitter = 0.5
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			c := failing(always(errDown))
			_, err := retry.Do(ctx, p, c.op)
			cancel()
			matches(t, err, errDown)
			if most := int(time.Second / (5 * ms / 2)); len(c.at) == 0 || len(c.at) > most || (fields == 0) != (len(c.at) == 1) {
				t.Errorf("%+v: %d runs in a second", p, len(c.at))
			}
		}
	})
	bubble(t, "jitter stays below Max", func(t *testing.T) {
		p := retry.Policy{Initial: 90 * ms, Max: 100 * ms, Multiplier: 3, Jitter: 1, Attempts: 200}
		c := failing(always(errDown))
		_, err := retry.Do(t.Context(), p, c.op)
		matches(t, err, errDown)
		for i := 1; i < len(c.at); i++ {
			if d := c.at[i] - c.at[i-1]; d <= 0 || d > p.Max {
				t.Errorf("pause %d took %v", i, d)
			}
		}
	})
	bubble(t, "permanent error of an inner library", func(t *testing.T) {
		inner := fmt.Errorf("shard 3: %w", backoff.Permanent(errDown))
		c := failing(always(inner))
		_, err := retry.Do(t.Context(), retry.Policy{Initial: ms, Attempts: 4}, c.op)
		if len(c.at) != 4 || err != inner {
			t.Errorf("%v after %d runs", err, len(c.at))
		}
	})
	bubble(t, "no elapsed time ends a run", func(t *testing.T) {
		c := failing(func(n int) error {
			if n <= 48 {
				return errDown
			}
			return nil
		})
		if _, err := retry.Do(t.Context(), retry.Policy{Initial: time.Hour}, c.op); err != nil || time.Since(c.start) != 48*time.Hour {
			t.Errorf("%v after %v", err, time.Since(c.start))
		}
	})
}

func TestDo_ContextDone(t *testing.T) {
	t.Parallel()
	bubble(t, "context done before", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errRoof)
		c := failing(always(nil))
		v, err := retry.Do(ctx, retry.LockWait, c.op)
		if len(c.at) != 0 || v != "" {
			t.Errorf("%d runs, %q", len(c.at), v)
		}
		matches(t, err, context.Canceled, errRoof)
	})
	bubble(t, "context canceled during the pause", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(15*ms, func() { cancel(errRoof) })
		c := failing(always(errDown))
		_, err := retry.Do(ctx, steady, c.op)
		if len(c.at) != 2 || time.Since(c.start) != 15*ms {
			t.Errorf("%d runs in %v", len(c.at), time.Since(c.start))
		}
		matches(t, err, errDown, context.Canceled, errRoof)
	})
	bubble(t, "context canceled as the pause ends", func(t *testing.T) {
		for range 50 { // both channels are ready, and select chooses at random
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(10*ms, cancel)
			c := failing(always(errDown))
			_, err := retry.Do(ctx, steady, c.op)
			synctest.Wait()
			if len(c.at) > 2 || len(c.at) == 2 && c.at[1] != 10*ms {
				t.Fatalf("ran at %v", c.at)
			}
			matches(t, err, errDown, context.Canceled)
		}
	})
}

func TestDo_ContextDoneDuringRun(t *testing.T) {
	t.Parallel()
	bubble(t, "context canceled during the operation", func(t *testing.T) {
		for _, p := range []retry.Policy{retry.LockWait, retry.None} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 10*ms, errRoof)
			_, err := retry.Do(ctx, p, func(ctx context.Context) (int, error) {
				<-ctx.Done()
				return 1, errDown
			})
			cancel()
			matches(t, err, errDown, context.DeadlineExceeded, errRoof)
		}
	})
	bubble(t, "operation reports the context", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*ms)
		defer cancel()
		_, err := retry.Do(ctx, retry.LockWait, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, fmt.Errorf("dial: %w", ctx.Err())
		})
		if got, want := err.Error(), "dial: context deadline exceeded"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
	bubble(t, "operation reports it without cause", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := retry.Do(ctx, retry.LockWait, func(ctx context.Context) (int, error) {
			cancel(errRoof)
			return 0, ctx.Err()
		})
		matches(t, err, context.Canceled, errRoof)
	})
	bubble(t, "success on a canceled context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		v, err := retry.Do(ctx, retry.LockWait, func(context.Context) (int, error) { cancel(); return 7, nil })
		if v != 7 || err != nil {
			t.Errorf("%d, %v", v, err)
		}
	})
}

func TestDo_Deadline(t *testing.T) {
	t.Parallel()
	bubble(t, "pause reaches the deadline", func(t *testing.T) {
		// left is the time to the deadline. The pause is an hour.
		for _, left := range []time.Duration{40 * ms, time.Hour} {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			c := failing(always(errDown))
			_, err := retry.Do(ctx, retry.Policy{Initial: time.Hour}, c.op)
			if len(c.at) != 1 || time.Since(c.start) != 0 || ctx.Err() != nil {
				t.Errorf("%d runs in %v, context: %v", len(c.at), time.Since(c.start), ctx.Err())
			}
			matches(t, err, errDown, context.DeadlineExceeded)
			cancel()
		}
	})
	bubble(t, "pause before the deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*ms+1)
		defer cancel()
		c := failing(always(errDown))
		_, err := retry.Do(ctx, steady, c.op)
		if len(c.at) != 2 || time.Since(c.start) != 10*ms {
			t.Errorf("%d runs in %v", len(c.at), time.Since(c.start))
		}
		matches(t, err, errDown, context.DeadlineExceeded)
	})
}
