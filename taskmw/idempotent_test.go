package taskmw_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/taskmw"
)

func TestIdempotent(t *testing.T) {
	t.Parallel()
	idempotent := func(t *testing.T, l *core.Locker, opts ...taskmw.Option) asynq.MiddlewareFunc {
		t.Helper()
		return taskmw.Idempotent(newOnce(t, l), "mail", taskmw.Payload("id"), opts...)
	}

	t.Run("fifty duplicates at once", func(t *testing.T) {
		t.Parallel()
		mw, runs := idempotent(t, memLocker(t)), atomic.Int32{}
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				err := run(t.Context(), mw, `{"id":1}`, func(context.Context, *asynq.Task) error {
					runs.Add(1)
					time.Sleep(time.Millisecond)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if runs.Load() != 1 {
			t.Errorf("%d ran", runs.Load())
		}
	})

	t.Run("failed run is run again", func(t *testing.T) {
		t.Parallel()
		mw, failed := idempotent(t, memLocker(t)), errors.New("no connection")
		for want := 1; want <= 3; want++ {
			err := run(t.Context(), mw, `{"id":1}`, func(ctx context.Context, _ *asynq.Task) error {
				if n, ok := once.AttemptFromContext(ctx); n != want || !ok {
					t.Errorf("attempt %d, %v; want %d", n, ok, want)
				}
				if want < 3 {
					return failed
				}
				return nil
			})
			if want < 3 && err != failed || want == 3 && err != nil {
				t.Errorf("attempt %d: got %v", want, err)
			}
		}
		if err := run(t.Context(), mw, `{"id":1}`, mustNotRun(t)); err != nil {
			t.Error(err)
		}
		if err := run(t.Context(), mw, `{"id":2}`, func(context.Context, *asynq.Task) error { return failed }); err != failed {
			t.Errorf("another key: %v", err)
		}
	})

	t.Run("another payload or type is archived", func(t *testing.T) { // hazard 60
		t.Parallel()
		mw := idempotent(t, memLocker(t))
		done := func(context.Context, *asynq.Task) error { return nil }
		if err := run(t.Context(), mw, `{"id":1,"cents":5}`, done); err != nil {
			t.Fatal(err)
		}
		err := run(t.Context(), mw, `{"id":1,"cents":6}`, mustNotRun(t))
		if !errors.Is(err, once.ErrMismatch) || !errors.Is(err, asynq.SkipRetry) || !strings.Contains(err.Error(), "mail") {
			t.Errorf("another payload: %v", err)
		}
		err = mw(mustNotRun(t)).ProcessTask(t.Context(), asynq.NewTask("order:refund", []byte(`{"id":1,"cents":5}`)))
		if !errors.Is(err, once.ErrMismatch) || !errors.Is(err, asynq.SkipRetry) {
			t.Errorf("another type: %v", err)
		}
		if err := run(t.Context(), mw, `{"id":1,"cents":5}`, mustNotRun(t)); err != nil {
			t.Errorf("the same: %v", err)
		}
	})

	t.Run("Fingerprint", func(t *testing.T) {
		t.Parallel()
		mw := idempotent(t, memLocker(t), taskmw.Fingerprint(taskmw.Payload("cents")))
		done := func(context.Context, *asynq.Task) error { return nil }
		if err := run(t.Context(), mw, `{"id":1,"cents":5,"trace":"a"}`, done); err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), mw, `{"id":1,"cents":5,"trace":"b"}`, mustNotRun(t)); err != nil {
			t.Errorf("another trace: %v", err)
		}
		if err := run(t.Context(), mw, `{"id":1,"cents":6,"trace":"a"}`, mustNotRun(t)); !errors.Is(err, once.ErrMismatch) {
			t.Errorf("another amount: %v", err)
		}
		if err := run(t.Context(), mw, `{"id":1}`, mustNotRun(t)); !errors.Is(err, asynq.SkipRetry) {
			t.Errorf("no amount: %v", err)
		}
	})

	t.Run("empty fingerprint", func(t *testing.T) {
		t.Parallel()
		none := func(context.Context, *asynq.Task) (string, error) { return "", nil }
		err := run(t.Context(), idempotent(t, memLocker(t), taskmw.Fingerprint(none)), `{"id":1}`, mustNotRun(t))
		if !errors.Is(err, asynq.SkipRetry) || !strings.Contains(err.Error(), "the fingerprint is empty") {
			t.Errorf("got %v", err)
		}
	})

	t.Run("inner one that could not run", func(t *testing.T) {
		t.Parallel()
		closed := memLocker(t)
		if err := closed.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		outer := taskmw.Idempotent(newOnce(t, memLocker(t), once.AtMostOnce()), "outer", taskmw.Payload("id"))
		inner := taskmw.Idempotent(newOnce(t, closed), "inner", taskmw.Payload("id"))
		ctx, cancel := context.WithCancel(t.Context())
		both := func(next asynq.Handler) asynq.Handler {
			return outer(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				cancel()
				return inner(next).ProcessTask(ctx, task)
			}))
		}
		for _, ctx := range []context.Context{ctx, t.Context()} {
			if err := run(ctx, both, `{"id":1}`, mustNotRun(t)); !errors.Is(err, core.ErrClosed) || errors.Is(err, once.ErrIndeterminate) {
				t.Errorf("got %v", err)
			}
		}
	})

	t.Run("run that died midway", func(t *testing.T) {
		t.Parallel()
		for _, strict := range []bool{true, false} {
			var opts []once.Option
			if strict {
				opts = append(opts, once.AtMostOnce())
			}
			mw := taskmw.Idempotent(newOnce(t, memLocker(t), opts...), "mail", taskmw.Payload("id"))
			func() {
				defer func() { _ = recover() }()
				_ = run(t.Context(), mw, `{"id":1}`, func(context.Context, *asynq.Task) error { panic("midway") })
			}()
			attempt := 0
			err := run(t.Context(), mw, `{"id":1}`, func(ctx context.Context, _ *asynq.Task) error {
				attempt, _ = once.AttemptFromContext(ctx)
				return nil
			})
			if strict && (!errors.Is(err, once.ErrIndeterminate) || !errors.Is(err, asynq.SkipRetry) || attempt != 0) {
				t.Errorf("strict: got %v, attempt %d", err, attempt)
			}
			if !strict && (err != nil || attempt != 2) {
				t.Errorf("got %v, attempt %d", err, attempt)
			}
		}
	})

	t.Run("run that timed out", func(t *testing.T) { // hazard 59
		t.Parallel()
		mw := taskmw.Idempotent(newOnce(t, memLocker(t), once.AtMostOnce()), "mail", taskmw.Payload("id"))
		for name, c := range map[string]struct {
			payload string
			first   func(cancel func()) error
			died    bool
		}{
			"its own call timed out":  {`{"id":1}`, func(func()) error { return fmt.Errorf("bank: %w", context.DeadlineExceeded) }, true},
			"task's context canceled": {`{"id":2}`, func(cancel func()) error { cancel(); return errors.New("bank: interrupted") }, true},
			"it failed":               {`{"id":3}`, func(func()) error { return errors.New("bank: declined") }, false},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			err := run(ctx, mw, c.payload, func(context.Context, *asynq.Task) error { return c.first(cancel) })
			if cancel(); err == nil || !strings.HasPrefix(err.Error(), "bank: ") {
				t.Errorf("%s: got %v, want the handler's error", name, err)
			}
			ran := false
			err = run(t.Context(), mw, c.payload, func(context.Context, *asynq.Task) error { ran = true; return nil })
			if ran == c.died || errors.Is(err, asynq.SkipRetry) != c.died || errors.Is(err, once.ErrIndeterminate) != c.died {
				t.Errorf("%s: ran again %v, %v", name, ran, err)
			}
		}
	})

	t.Run("context canceled while waiting", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			l := memLocker(t)
			release := hold(t, l, "order:1")
			outer := taskmw.Idempotent(newOnce(t, l, once.AtMostOnce()), "mail", taskmw.Payload("id"))
			both := func(h asynq.Handler) asynq.Handler { return outer(locked(t, l)(h)) }
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(300*time.Millisecond, cancel)
			if err := run(ctx, both, `{"id":1}`, mustNotRun(t)); !errors.Is(err, context.Canceled) || errors.Is(err, once.ErrIndeterminate) {
				t.Errorf("got %v", err)
			}
			release()
			if err := run(t.Context(), both, `{"id":1}`, keyOf); err == nil || err.Error() != "order:1" {
				t.Errorf("got %v, want a run", err)
			}
		})
	})

	t.Run("done and not recorded", func(t *testing.T) {
		t.Parallel()
		o := newOnce(t, memLocker(t))
		typename, payload := sha256.Sum256([]byte("order:pay")), sha256.Sum256([]byte(`{"id":1}`))
		sum := sha256.Sum256(append(typename[:], payload[:]...))
		_, err := o.Do(t.Context(), once.Call{Name: "mail", Key: "1", Fingerprint: sum[:]}, func(context.Context) (once.Answer, error) {
			return once.Answer{Unreplayable: true}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), taskmw.Idempotent(o, "mail", taskmw.Payload("id")), `{"id":1}`, mustNotRun(t)); err != nil {
			t.Errorf("got %v", err)
		}
	})

	t.Run("lost lease without stored success", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			for _, want := range []error{nil, errors.New("half done")} {
				store := &mute{deaf: deaf{memstore.New()}}
				err := run(t.Context(), idempotent(t, newLocker(t, store)), `{"id":1}`, func(ctx context.Context, _ *asynq.Task) error {
					<-ctx.Done()
					if cause := context.Cause(ctx); !errors.Is(cause, core.ErrLost) {
						t.Errorf("the cause is %v", cause)
					}
					return want
				})
				if err != want {
					t.Errorf("got %v, want %v", err, want)
				}
				store.well.Store(true)
				store = &mute{deaf: deaf{memstore.New()}}
				err = run(t.Context(), idempotent(t, newLocker(t, store)), `{"id":1}`, func(context.Context, *asynq.Task) error { return want })
				if err != want {
					t.Errorf("not noted: got %v, want %v", err, want)
				}
				store.well.Store(true)
			}
		})
	})

	t.Run("Once with a wait", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			for _, c := range []struct {
				opts []once.Option
				want time.Duration
			}{
				{nil, time.Second},
				{[]once.Option{once.Acquire(core.Wait(7 * time.Second))}, 7 * time.Second},
				{[]once.Option{once.Acquire(core.Wait(0))}, 0},
			} {
				mw := taskmw.Idempotent(newOnce(t, memLocker(t), c.opts...), "mail", taskmw.Payload("id"))
				begun, finish := make(chan struct{}), make(chan struct{})
				go func() {
					_ = run(t.Context(), mw, `{"id":1}`, func(context.Context, *asynq.Task) error {
						close(begun)
						<-finish
						return nil
					})
				}()
				<-begun
				start := time.Now()
				err := run(t.Context(), mw, `{"id":1}`, mustNotRun(t))
				if waited := time.Since(start); !errors.Is(err, core.ErrBusy) || waited != c.want {
					t.Errorf("got %v after %v, want %v", err, waited, c.want)
				}
				time.AfterFunc(c.want/2, func() { close(finish) })
				if c.want == 0 {
					time.Sleep(time.Millisecond)
				}
				if err := run(t.Context(), mw, `{"id":1}`, mustNotRun(t)); err != nil {
					t.Errorf("got %v", err)
				}
			}
		})
	})

	t.Run("inside of a Lock", func(t *testing.T) {
		t.Parallel()
		l := memLocker(t)
		lock, mw := locked(t, l, taskmw.Acquire(core.Wait(soon))), idempotent(t, l)
		both := func(h asynq.Handler) asynq.Handler { return lock(mw(h)) }
		var runs atomic.Int32
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				err := run(t.Context(), both, `{"id":1}`, func(ctx context.Context, _ *asynq.Task) error {
					runs.Add(1)
					if lease, ok := core.LeaseFromContext(ctx); !ok || lease.Key() != "order:1" {
						t.Error("the handler does not find its lock")
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if runs.Load() != 1 {
			t.Errorf("%d ran", runs.Load())
		}
	})
}

// mute is a store that grants, never answers extensions, and answers releases only when
// well is set.
type mute struct {
	deaf
	well atomic.Bool
}

func (m *mute) Release(ctx context.Context, c store.Claim) error {
	if m.well.Load() {
		return m.deaf.Release(ctx, c)
	}
	return core.ErrUnavailable
}
