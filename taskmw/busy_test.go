package taskmw_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/taskmw"
)

var policies = map[string]taskmw.Busy{
	"reschedule": taskmw.Reschedule, "wait": taskmw.Wait, "drop": taskmw.Drop, "skip": taskmw.Skip, "fail": taskmw.Fail,
}

func TestBusy(t *testing.T) {
	t.Parallel()

	t.Run("result of each policy", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct{ busy, revoke, failure bool }{
			"reschedule": {true, false, false},
			"wait":       {true, false, false},
			"drop":       {true, true, false},
			"skip":       {false, false, false},
			"fail":       {true, false, true},
		} {
			bothBusy(t, name, 10*time.Second, func(t *testing.T, err error) {
				if errors.Is(err, core.ErrBusy) != c.busy || errors.Is(err, asynq.RevokeTask) != c.revoke || errors.Is(err, asynq.SkipRetry) {
					t.Errorf("%s: got %v", name, err)
				}
				if err == nil {
					return
				}
				if taskmw.Configure(asynq.Config{}).IsFailure(err) != c.failure {
					t.Errorf("%s: failure %v", name, !c.failure)
				}
				var busy *core.BusyError
				ok := errors.As(err, &busy)
				if !ok || busy.Name != "order" || busy.Key != "" || busy.RetryAfter <= 0 || busy.RetryAfter > 30*time.Second {
					t.Errorf("%s: got %+v", name, busy)
				}
				if all := fmt.Sprintf("%v %+v %#v %+v", err, err, err, busy); strings.Contains(all, "secret") {
					t.Errorf("%s: %s shows the key", name, all)
				}
			})
		}
	})

	t.Run("length of the wait", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			policy string
			left   time.Duration // 0: no deadline
			asked  time.Duration // less than 0: without core.Wait
			want   time.Duration
		}{
			{"reschedule", 0, -1, time.Second},
			{"reschedule", 30 * time.Minute, -1, time.Second},
			{"reschedule", 4 * time.Second, -1, 400 * time.Millisecond},
			{"reschedule", 30 * time.Minute, 0, 0},
			{"reschedule", 30 * time.Minute, 20 * time.Second, 20 * time.Second},
			{"reschedule", 10 * time.Second, 20 * time.Second, 9 * time.Second},
			{"reschedule", time.Minute, time.Hour, 55 * time.Second},
			{"wait", 30 * time.Minute, -1, 30*time.Minute - 5*time.Second},
			{"wait", 10 * time.Second, -1, 9 * time.Second},
			{"wait", time.Minute, 20 * time.Second, 20 * time.Second},
			{"drop", time.Minute, -1, 0},
			{"drop", time.Minute, time.Second, time.Second},
			{"skip", time.Minute, -1, 0},
			{"skip", 0, -1, 0},
			{"fail", time.Minute, -1, time.Second},
			{"fail", 4 * time.Second, -1, 400 * time.Millisecond},
		} {
			synctest.Test(t, func(t *testing.T) {
				l := memLocker(t)
				hold(t, l, "order:1")
				ctx := t.Context()
				if c.left > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.left)
					defer cancel()
				}
				opts := []taskmw.Option{taskmw.OnBusy(policies[c.policy])}
				if c.asked >= 0 {
					opts = append(opts, taskmw.Acquire(core.Wait(c.asked)))
				}
				start := time.Now()
				_ = run(ctx, locked(t, l, opts...), `{"id":1}`, mustNotRun(t))
				if waited := time.Since(start); waited != c.want {
					t.Errorf("%s with %v left, asked for %v: waited %v, want %v", c.policy, c.left, c.asked, waited, c.want)
				}
			})
		}
	})

	t.Run("task that waits in-line", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			l := memLocker(t)
			release := hold(t, l, "order:1")
			time.AfterFunc(700*time.Millisecond, release)
			start := time.Now()
			if err := run(t.Context(), locked(t, l), `{"id":1}`, keyOf); err == nil || err.Error() != "order:1" || time.Since(start) != 700*time.Millisecond {
				t.Errorf("got %v after %v", err, time.Since(start))
			}
		})
	})

	t.Run("context canceled while waiting", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			l := memLocker(t)
			release := hold(t, l, "order:1")
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(300*time.Millisecond, cancel)
			time.AfterFunc(301*time.Millisecond, release)
			if err := run(ctx, locked(t, l), `{"id":1}`, mustNotRun(t)); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
	})

	t.Run("task abandoned at its grant", func(t *testing.T) {
		t.Parallel()
		store := &late{Store: memstore.New()}
		l := newLocker(t, store)
		for _, mw := range []asynq.MiddlewareFunc{locked(t, l), taskmw.Idempotent(newOnce(t, l), "order", taskmw.Payload("id"))} {
			var ctx context.Context
			ctx, store.granted = context.WithCancel(t.Context())
			if err := run(ctx, mw, `{"id":1}`, mustNotRun(t)); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		}
	})
}

// late is a store that cancels its caller's context when it grants a claim.
type late struct {
	*memstore.Store
	granted context.CancelFunc
}

func (s *late) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if err == nil {
		s.granted()
	}
	return g, err
}

// bothBusy tests a Lock and an Idempotent whose key is busy.
func bothBusy(t *testing.T, policy string, left time.Duration, check func(*testing.T, error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := memLocker(t)
		hold(t, l, "order:secret")
		ctx, cancel := context.WithTimeout(t.Context(), left)
		defer cancel()
		check(t, run(ctx, locked(t, l, taskmw.OnBusy(policies[policy])), `{"id":"secret"}`, mustNotRun(t)))

		mw := taskmw.Idempotent(newOnce(t, l), "order", taskmw.Payload("id"), taskmw.OnBusy(policies[policy]))
		begun, finish := make(chan struct{}), make(chan struct{})
		go func() {
			_ = run(t.Context(), mw, `{"id":"secret"}`, func(context.Context, *asynq.Task) error {
				close(begun)
				<-finish
				return nil
			})
		}()
		<-begun
		again, cancel := context.WithTimeout(t.Context(), left)
		defer cancel()
		check(t, run(again, mw, `{"id":"secret"}`, mustNotRun(t)))
		close(finish)
	})
}

// TestBusy_NotRunIsNotKept checks that KeepFor keeps no key of a task that did not run,
// because an inner key was busy or the server has abandoned the task. Otherwise Skip
// would take the task's next delivery for done, and nobody would do the job.
func TestBusy_NotRunIsNotKept(t *testing.T) {
	t.Parallel()
	report := func(l *core.Locker) asynq.MiddlewareFunc {
		return taskmw.Lock(l, "report", taskmw.Type(), taskmw.OnBusy(taskmw.Skip), taskmw.Acquire(core.KeepFor(time.Hour)))
	}
	done := func(ran *int) asynq.HandlerFunc {
		return func(context.Context, *asynq.Task) error { *ran++; return nil }
	}
	t.Run("inner Lock is busy", func(t *testing.T) {
		t.Parallel()
		l, ran := memLocker(t), 0
		both := func(h asynq.Handler) asynq.Handler { return report(l)(locked(t, l, taskmw.OnBusy(taskmw.Fail))(h)) }
		release := hold(t, l, "order:1")
		if err := run(t.Context(), both, `{"id":1}`, mustNotRun(t)); !errors.Is(err, core.ErrBusy) {
			t.Fatalf("got %v, want a busy inner key", err)
		}
		release()
		for range 2 { // the second finds the key kept
			if err := run(t.Context(), both, `{"id":1}`, done(&ran)); err != nil || ran != 1 {
				t.Errorf("got %v after %d runs, want one run", err, ran)
			}
		}
	})
	t.Run("abandoned after the grant", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		l, ran := newLocker(t, leaving{memstore.New(), cancel}), 0
		if err := run(ctx, report(l), `{"id":1}`, mustNotRun(t)); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want %v", err, context.Canceled)
		}
		if err := run(t.Context(), report(l), `{"id":1}`, done(&ran)); err != nil || ran != 1 {
			t.Errorf("got %v after %d runs, want a run", err, ran)
		}
	})
}

// leaving is a store that calls leave while it grants a claim.
type leaving struct {
	*memstore.Store
	leave func()
}

func (s leaving) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	s.leave()
	return g, err
}

func TestConfigure(t *testing.T) {
	t.Parallel()
	contention := func(t *testing.T) error {
		t.Helper()
		l := memLocker(t)
		hold(t, l, "order:1")
		return fmt.Errorf("wrapped by a middleware: %w", run(t.Context(), locked(t, l, taskmw.Acquire(core.Wait(0))), `{"id":1}`, mustNotRun(t)))
	}
	own := errors.New("own")

	t.Run("contention is no failure", func(t *testing.T) {
		t.Parallel()
		busy, handled := contention(t), 0
		cfg := taskmw.Configure(asynq.Config{
			Concurrency:    7,
			IsFailure:      func(err error) bool { return err != own },
			RetryDelayFunc: func(n int, _ error, _ *asynq.Task) time.Duration { return time.Duration(n) * time.Hour },
			ErrorHandler:   asynq.ErrorHandlerFunc(func(context.Context, *asynq.Task, error) { handled++ }),
		})
		if cfg.Concurrency != 7 || cfg.IsFailure(busy) || cfg.IsFailure(own) || !cfg.IsFailure(errors.New("other")) {
			t.Error("failures are not as they should be")
		}
		if d := cfg.RetryDelayFunc(3, own, nil); d != 3*time.Hour {
			t.Errorf("own error: %v", d)
		}
		cfg.ErrorHandler.HandleError(t.Context(), nil, busy)
		if handled != 0 {
			t.Error("the ErrorHandler was called for contention")
		}
		cfg.ErrorHandler.HandleError(t.Context(), nil, own)
		cfg.ErrorHandler.HandleError(t.Context(), nil, fmt.Errorf("a handler's own lock: %w", core.ErrBusy))
		if handled != 2 {
			t.Errorf("the ErrorHandler was called %d times", handled)
		}
	})

	t.Run("defaults of asynq", func(t *testing.T) {
		t.Parallel()
		cfg := taskmw.Configure(asynq.Config{})
		if cfg.IsFailure(contention(t)) || !cfg.IsFailure(own) || cfg.IsFailure(nil) || cfg.ErrorHandler != nil {
			t.Error("failures are not as they should be")
		}
		if d := cfg.RetryDelayFunc(0, own, nil); d < 15*time.Second || d > 45*time.Second {
			t.Errorf("own error: %v, want asynq's delay", d)
		}
	})

	t.Run("pause of a busy task", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct{ tick, ttl, least, most time.Duration }{
			{0, 30 * time.Second, 2500 * time.Millisecond, 7500 * time.Millisecond},
			{-1, 30 * time.Second, 2500 * time.Millisecond, 7500 * time.Millisecond},
			{0, time.Second, 2500 * time.Millisecond, 6 * time.Second},
			{time.Second, 30 * time.Second, 500 * time.Millisecond, 1500 * time.Millisecond},
			{time.Hour, time.Second, 30 * time.Minute, time.Hour + time.Second},
		} {
			cfg := taskmw.Configure(asynq.Config{DelayedTaskCheckInterval: c.tick})
			l := memLocker(t, core.WithDefaults(core.TTL(c.ttl)))
			hold(t, l, "order:1")
			err := run(t.Context(), locked(t, l, taskmw.Acquire(core.Wait(0))), `{"id":1}`, mustNotRun(t))
			seen := map[time.Duration]bool{}
			for range 100 {
				d := cfg.RetryDelayFunc(25, err, nil)
				seen[d] = true
				if d < c.least || d > c.most {
					t.Fatalf("tick %v, TTL %v: %v, want %v to %v", c.tick, c.ttl, d, c.least, c.most)
				}
			}
			if len(seen) < 20 {
				t.Errorf("tick %v: %d delays of 100 differ", c.tick, len(seen))
			}
		}
	})

	t.Run("intervals of a server", func(t *testing.T) {
		t.Parallel()
		cfg := taskmw.Configure(asynq.Config{})
		if a, b := cfg.DelayedTaskCheckInterval, cfg.TaskCheckInterval; a != 100*time.Millisecond || b != a {
			t.Errorf("every %v and %v", a, b)
		}
		cfg = taskmw.Configure(asynq.Config{DelayedTaskCheckInterval: time.Minute, TaskCheckInterval: time.Second})
		if cfg.DelayedTaskCheckInterval != time.Minute || cfg.TaskCheckInterval != time.Second {
			t.Error("the caller's own are not kept")
		}
	})

	t.Run("base context configured twice", func(t *testing.T) {
		t.Parallel()
		type key struct{}
		cfg := asynq.Config{BaseContext: func() context.Context { return context.WithValue(context.Background(), key{}, "mine") }}
		cfg = taskmw.Configure(taskmw.Configure(cfg))
		if cfg.BaseContext().Value(key{}) != "mine" || cfg.IsFailure(contention(t)) || !cfg.IsFailure(own) {
			t.Error("something was lost")
		}
		if taskmw.Configure(asynq.Config{}).BaseContext() == nil {
			t.Error("there is no base context")
		}
	})
}
