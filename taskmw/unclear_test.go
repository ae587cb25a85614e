package taskmw_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/taskmw"
)

// TestIdempotent_LostInside runs a handler whose inner lease expires, while the lease of
// the run is still held. With AtMostOnce the task must not run again (hazard 59).
func TestIdempotent_LostInside(t *testing.T) {
	t.Parallel()
	short := core.MaxHold(time.Second)
	for name, inside := range map[string]func(t *testing.T, l *core.Locker) asynq.MiddlewareFunc{
		"one lock": func(t *testing.T, l *core.Locker) asynq.MiddlewareFunc {
			return locked(t, l, taskmw.Acquire(short))
		},
		"lock around the lost one": func(t *testing.T, l *core.Locker) asynq.MiddlewareFunc {
			outer, inner := taskmw.Lock(l, "tenant", taskmw.Payload("id")), locked(t, l, taskmw.Acquire(short))
			return func(h asynq.Handler) asynq.Handler { return outer(inner(h)) }
		},
		"run in a run": func(t *testing.T, l *core.Locker) asynq.MiddlewareFunc {
			return taskmw.Idempotent(newOnce(t, l, once.Acquire(short)), "inner", taskmw.Payload("id"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := memLocker(t)
				outer, inner := taskmw.Idempotent(newOnce(t, l, once.AtMostOnce()), "pay", taskmw.Payload("id")), inside(t, l)
				both := func(h asynq.Handler) asynq.Handler { return outer(inner(h)) }
				interrupted := errors.New("bank: interrupted")
				err := run(t.Context(), both, `{"id":1}`, func(ctx context.Context, _ *asynq.Task) error {
					<-ctx.Done()
					return interrupted
				})
				if !errors.Is(err, interrupted) {
					t.Errorf("got %v, want %v", err, interrupted)
				}
				if err := run(t.Context(), both, `{"id":1}`, mustNotRun(t)); !errors.Is(err, once.ErrIndeterminate) {
					t.Errorf("again: got %v, want %v", err, once.ErrIndeterminate)
				}
			})
		})
	}
}

// TestIdempotent_BusyAfterATry checks a run whose first try has reached the handler. The
// run counts as an attempt, even if the next try of a middleware in between finds the
// lock busy (hazard 59).
func TestIdempotent_BusyAfterATry(t *testing.T) {
	t.Parallel()
	own := errors.New("no connection")
	for name, c := range map[string]struct{ first, again error }{
		"handler failed":   {own, nil},
		"progress unknown": {context.DeadlineExceeded, once.ErrIndeterminate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := memLocker(t)
				outer := taskmw.Idempotent(newOnce(t, l, once.AtMostOnce()), "pay", taskmw.Payload("id"))
				inner := locked(t, l, taskmw.Acquire(core.Wait(0)))
				release := func() {}
				twice := func(h asynq.Handler) asynq.Handler {
					h = inner(h)
					return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
						if err := h.ProcessTask(ctx, task); err == nil {
							return nil
						}
						release = hold(t, l, "order:1")
						return h.ProcessTask(ctx, task)
					})
				}
				both := func(h asynq.Handler) asynq.Handler { return outer(twice(h)) }
				err := run(t.Context(), both, `{"id":1}`, func(context.Context, *asynq.Task) error { return c.first })
				if !errors.Is(err, core.ErrBusy) {
					t.Errorf("got %v, want %v", err, core.ErrBusy)
				}
				release()
				attempt := 0
				err = run(t.Context(), outer, `{"id":1}`, func(ctx context.Context, _ *asynq.Task) error {
					attempt, _ = once.AttemptFromContext(ctx)
					return nil
				})
				if !errors.Is(err, c.again) || c.again == nil && attempt != 2 || c.again != nil && attempt != 0 {
					t.Errorf("again: got attempt %d and %v, want %v", attempt, err, c.again)
				}
			})
		})
	}
}

// TestIdempotent_ChildTask checks a handler that processes another task under its own
// context. The child's unknown progress is not that of the handler.
func TestIdempotent_ChildTask(t *testing.T) {
	t.Parallel()
	l := memLocker(t)
	outer := taskmw.Idempotent(newOnce(t, l, once.AtMostOnce()), "pay", taskmw.Payload("id"))
	child := taskmw.Lock(l, "mail", taskmw.Payload("id"))(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		return context.DeadlineExceeded
	}))
	declined := errors.New("bank: declined")
	for want := 1; want <= 2; want++ {
		attempt := 0
		err := run(t.Context(), outer, `{"id":1}`, func(ctx context.Context, _ *asynq.Task) error {
			attempt, _ = once.AttemptFromContext(ctx)
			if err := child.ProcessTask(ctx, asynq.NewTask("mail:send", []byte(`{"id":1}`))); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("child: got %v, want %v", err, context.DeadlineExceeded)
			}
			return declined
		})
		if !errors.Is(err, declined) || attempt != want {
			t.Errorf("got attempt %d and %v, want attempt %d", attempt, err, want)
		}
	}
}

// TestIdempotent_LeftTry checks a run whose first try is left by a middleware in between
// while its handler is running. The next try finds the lock busy.
func TestIdempotent_LeftTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := memLocker(t)
		outer := taskmw.Idempotent(newOnce(t, l, once.AtMostOnce()), "pay", taskmw.Payload("id"))
		inner := locked(t, l, taskmw.Acquire(core.Wait(0)))
		left := func(h asynq.Handler) asynq.Handler {
			h = inner(h)
			return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				go func() { _ = h.ProcessTask(ctx, task) }()
				synctest.Wait()
				return h.ProcessTask(ctx, task)
			})
		}
		finish := make(chan struct{})
		err := run(t.Context(), func(h asynq.Handler) asynq.Handler { return outer(left(h)) }, `{"id":1}`, func(context.Context, *asynq.Task) error {
			<-finish
			return nil
		})
		if !errors.Is(err, core.ErrBusy) {
			t.Errorf("got %v, want %v", err, core.ErrBusy)
		}
		if err := run(t.Context(), outer, `{"id":1}`, mustNotRun(t)); !errors.Is(err, once.ErrIndeterminate) {
			t.Errorf("again: got %v, want %v", err, once.ErrIndeterminate)
		}
		close(finish)
		synctest.Wait()
	})
}
