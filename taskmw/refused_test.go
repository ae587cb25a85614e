package taskmw_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/taskmw"
)

// TestRefusedInside checks an outer Idempotent with an inner Lock (hazard 59).
func TestRefusedInside(t *testing.T) {
	t.Parallel()
	attemptIn := func(ctx context.Context) int {
		n, _ := once.AttemptFromContext(ctx)
		return n
	}
	attemptOf := func(attempt *int) asynq.HandlerFunc {
		return func(ctx context.Context, _ *asynq.Task) error {
			*attempt = attemptIn(ctx)
			return nil
		}
	}
	for name, opts := range map[string][]once.Option{"": nil, " with AtMostOnce": {once.AtMostOnce()}} {
		outside := func(t *testing.T, l *core.Locker) asynq.MiddlewareFunc {
			return taskmw.Idempotent(newOnce(t, l, opts...), "pay", taskmw.Payload("id"))
		}

		t.Run("attempt 1 after three busy locks"+name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			l := r.locker()
			release := hold(t, l, "order:1")
			busy, attempts := atomic.Int32{}, make(chan int, 1)
			inner := locked(t, l, taskmw.Acquire(core.Wait(0)))
			handler := outside(t, l)(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				if busy.Add(1) == 4 {
					release()
				}
				return inner(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
					attempts <- attemptIn(ctx)
					return nil
				})).ProcessTask(ctx, task)
			}))
			cfg := taskmw.Configure(config())
			r.serve(cfg, handler)
			r.enqueue("order:pay", `{"id":1}`)
			if n := within(t, "the handler runs", attempts); n != 1 || busy.Load() != 4 {
				t.Errorf("attempt %d after %d deliveries, want 1 after 4", n, busy.Load())
			}
			r.drained(soon)
			if n := r.archived(); n != 0 {
				t.Errorf("%d tasks are archived", n)
			}
		})

		t.Run("store down or bad key inside"+name, func(t *testing.T) {
			t.Parallel()
			closed := newLocker(t, memstore.New())
			if err := closed.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			l := memLocker(t)
			pay := outside(t, l)
			for _, inner := range []asynq.MiddlewareFunc{locked(t, closed), taskmw.Lock(l, "order", taskmw.Payload("missing"))} {
				both := func(h asynq.Handler) asynq.Handler { return pay(inner(h)) }
				for range 3 {
					if err := run(t.Context(), both, `{"id":1}`, mustNotRun(t)); err == nil {
						t.Error("it is done")
					}
				}
			}
			attempt := 0
			if err := run(t.Context(), pay, `{"id":1}`, attemptOf(&attempt)); err != nil || attempt != 1 {
				t.Errorf("attempt %d, %v", attempt, err)
			}
		})

		t.Run("wrapped refusal"+name, func(t *testing.T) {
			t.Parallel()
			l := memLocker(t)
			release := hold(t, l, "order:1")
			inner := locked(t, l, taskmw.Acquire(core.Wait(0)))
			pay := outside(t, l)
			both := func(h asynq.Handler) asynq.Handler {
				return pay(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
					if err := inner(h).ProcessTask(ctx, task); err != nil {
						return fmt.Errorf("in between: %w", err)
					}
					return nil
				}))
			}
			for range 3 {
				if err := run(t.Context(), both, `{"id":1}`, mustNotRun(t)); !errors.Is(err, core.ErrBusy) {
					t.Errorf("got %v", err)
				}
			}
			release()
			attempt := 0
			if err := run(t.Context(), both, `{"id":1}`, attemptOf(&attempt)); err != nil || attempt != 1 {
				t.Errorf("attempt %d, %v", attempt, err)
			}
		})

		t.Run("busy lock of the handler"+name, func(t *testing.T) {
			t.Parallel()
			pay := outside(t, memLocker(t))
			for want := 1; want <= 3; want++ {
				err := run(t.Context(), pay, `{"id":1}`, func(ctx context.Context, _ *asynq.Task) error {
					if n := attemptIn(ctx); n != want {
						t.Errorf("attempt %d, want %d", n, want)
					}
					return fmt.Errorf("its own lock: %w", core.ErrBusy)
				})
				if !errors.Is(err, core.ErrBusy) {
					t.Errorf("got %v", err)
				}
			}
		})

		t.Run("attempt asked before a refusal"+name, func(t *testing.T) {
			t.Parallel()
			l := memLocker(t)
			hold(t, l, "order:1")
			inner := locked(t, l, taskmw.Acquire(core.Wait(0)))
			pay := outside(t, l)
			both := func(h asynq.Handler) asynq.Handler {
				return pay(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
					if n := attemptIn(ctx); n == 0 {
						t.Error("there is no attempt")
					}
					return inner(h).ProcessTask(ctx, task)
				}))
			}
			if err := run(t.Context(), both, `{"id":1}`, mustNotRun(t)); !errors.Is(err, core.ErrBusy) {
				t.Errorf("got %v", err)
			}
			attempt := 0
			if err := run(t.Context(), pay, `{"id":1}`, attemptOf(&attempt)); err != nil || attempt != 2 {
				t.Errorf("attempt %d, %v", attempt, err)
			}
		})
	}
}
