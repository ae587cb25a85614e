package taskmw_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/taskmw"
)

// TestLock runs without a server, like a unit test of a handler. asynq then passes no
// data of the task, and the middleware has to work without this data.
func TestLock(t *testing.T) {
	t.Parallel()

	t.Run("one at a time per key", func(t *testing.T) {
		t.Parallel()
		l := memLocker(t)
		first, second := locked(t, l, taskmw.Acquire(core.Wait(soon))), locked(t, l, taskmw.Acquire(core.Wait(soon)))
		var inside gauge
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				mw := first
				if i%2 == 0 {
					mw = second
				}
				err := run(t.Context(), mw, `{"id":"7"}`, func(context.Context, *asynq.Task) error {
					inside.enter()
					defer inside.leave()
					time.Sleep(100 * time.Microsecond)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if inside.most.Load() != 1 || inside.total.Load() != 40 {
			t.Errorf("%d ran, %d at once", inside.total.Load(), inside.most.Load())
		}
	})

	t.Run("result of the handler", func(t *testing.T) {
		t.Parallel()
		l := memLocker(t)
		for _, want := range []error{nil, errors.New("no money"), asynq.SkipRetry, asynq.RevokeTask, fmt.Errorf("a lock of mine: %w", core.ErrBusy), context.Canceled} {
			if err := run(t.Context(), locked(t, l), `{"id":1}`, func(context.Context, *asynq.Task) error { return want }); err != want {
				t.Errorf("got %v, want %v", err, want)
			}
			if !isFree(t, l, "order:1") {
				t.Errorf("after %v the key is held", want)
			}
		}
	})

	t.Run("panic frees the key", func(t *testing.T) { // hazard 50
		t.Parallel()
		l := memLocker(t)
		func() {
			defer func() {
				if p := recover(); p != "on fire" {
					t.Errorf("recovered %v", p)
				}
			}()
			_ = run(t.Context(), locked(t, l), `{"id":1}`, func(context.Context, *asynq.Task) error { panic("on fire") })
		}()
		if !isFree(t, l, "order:1") {
			t.Error("the key is held")
		}
	})

	t.Run("canceled task releases its key", func(t *testing.T) { // hazard 47
		t.Parallel()
		l := memLocker(t)
		ctx, cancel := context.WithCancel(t.Context())
		err := run(ctx, locked(t, l), `{"id":1}`, func(ctx context.Context, _ *asynq.Task) error {
			cancel()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, context.Canceled) || !isFree(t, l, "order:1") {
			t.Errorf("got %v, or the key is held", err)
		}
	})

	t.Run("Also", func(t *testing.T) {
		t.Parallel()
		l := memLocker(t)
		mw := taskmw.Lock(l, "account", taskmw.Payload("from"), taskmw.Also(taskmw.Payload("to")), taskmw.Acquire(core.Wait(soon)))
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				err := run(t.Context(), mw, []string{`{"from":1,"to":2}`, `{"from":2,"to":1}`, `{"from":1,"to":1}`}[i%3],
					func(context.Context, *asynq.Task) error {
						if isFree(t, l, "account:1") || i%3 < 2 && isFree(t, l, "account:2") {
							t.Error("an account is free")
						}
						return nil
					})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		err := run(t.Context(), mw, `{"from":1,"to":null}`, mustNotRun(t))
		if !errors.Is(err, asynq.SkipRetry) {
			t.Errorf("got %v, want SkipRetry", err)
		}
	})

	t.Run("nested locks", func(t *testing.T) {
		t.Parallel()
		l := memLocker(t)
		perUser := taskmw.Lock(l, "user", taskmw.Payload("user"))
		global := taskmw.Lock(l, "mail", taskmw.Type(), taskmw.Acquire(core.Permits(1, 2), core.Wait(0)))
		both := func(h asynq.Handler) asynq.Handler { return perUser(global(h)) }
		inner, err := l.Acquire(t.Context(), "mail:order%3Apay", core.Permits(2, 2))
		if err != nil {
			t.Fatal(err)
		}
		err = run(t.Context(), both, `{"user":1}`, mustNotRun(t))
		if !errors.Is(err, core.ErrBusy) || !strings.Contains(err.Error(), "mail: busy") || taskmw.Configure(asynq.Config{}).IsFailure(err) {
			t.Errorf("got %v", err)
		}
		_ = inner.Release(t.Context())
		if err := run(t.Context(), both, `{"user":1}`, func(context.Context, *asynq.Task) error { return nil }); err != nil {
			t.Error(err)
		}
	})

	t.Run("store down is a failure", func(t *testing.T) {
		t.Parallel()
		l := newLocker(t, broken{memstore.New()})
		err := run(t.Context(), locked(t, l), `{"id":"secret"}`, mustNotRun(t))
		if !errors.Is(err, core.ErrUnavailable) || errors.Is(err, asynq.SkipRetry) || !taskmw.Configure(asynq.Config{}).IsFailure(err) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v", err)
		}
		err = run(t.Context(), taskmw.Idempotent(newOnce(t, l), "order", taskmw.Payload("id")), `{"id":"secret"}`, mustNotRun(t))
		if !errors.Is(err, core.ErrUnavailable) || errors.Is(err, asynq.SkipRetry) || strings.Contains(err.Error(), "secret") {
			t.Errorf("Idempotent: got %v", err)
		}
	})

	t.Run("FailOpen", func(t *testing.T) {
		t.Parallel()
		events := &seen{}
		unlocked := func() []core.Event { return events.all(core.RanUnlocked) }
		l, want := newLocker(t, broken{memstore.New()}, core.WithObserver(events)), errors.New("no money")
		err := run(t.Context(), locked(t, l, taskmw.FailOpen()), `{"id":1}`, func(ctx context.Context, _ *asynq.Task) error {
			if _, found := core.LeaseFromContext(ctx); found || !core.Unlocked(ctx) {
				t.Error("it does not know that it runs without its lock")
			}
			return want
		})
		if err != want || len(unlocked()) != 1 || unlocked()[0].Name != "order" || !errors.Is(unlocked()[0].Err, core.ErrUnavailable) {
			t.Errorf("got %v, and the observer %v", err, unlocked())
		}
		l = memLocker(t, core.WithObserver(events))
		mw := locked(t, l, taskmw.FailOpen(), taskmw.Acquire(core.Wait(0)))
		if err := run(t.Context(), mw, `{"id":1}`, func(ctx context.Context, _ *asynq.Task) error {
			if core.Unlocked(ctx) || isFree(t, l, "order:1") {
				t.Error("it runs without its lock")
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		release := hold(t, l, "order:1")
		if err := run(t.Context(), mw, `{"id":1}`, mustNotRun(t)); !errors.Is(err, core.ErrBusy) {
			t.Errorf("a busy key: got %v", err)
		}
		release()
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), mw, `{"id":1}`, mustNotRun(t)); !errors.Is(err, core.ErrClosed) || len(unlocked()) != 1 {
			t.Errorf("a closed locker: got %v, and the observer %v", err, unlocked())
		}
	})

	t.Run("lost lease", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			for _, want := range []error{nil, errors.New("half done")} {
				store := &deaf{Store: memstore.New()}
				err := run(t.Context(), locked(t, newLocker(t, store)), `{"id":1}`, func(ctx context.Context, _ *asynq.Task) error {
					<-ctx.Done()
					if cause := context.Cause(ctx); !errors.Is(cause, core.ErrLost) {
						t.Errorf("the cause is %v", cause)
					}
					return want
				})
				if err != want {
					t.Errorf("got %v, want %v", err, want)
				}
			}
		})
	})

	t.Run("hung handler", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			defaults, opts []core.AcquireOption
			over           time.Duration // the time after which the lease is not extended
			ttl            time.Duration
		}{
			"by default":               {nil, nil, 2*time.Minute + 30*time.Second, 30 * time.Second},
			"with a TTL":               {nil, []core.AcquireOption{core.TTL(10 * time.Second)}, 2*time.Minute + 10*time.Second, 10 * time.Second},
			"with a MaxHold":           {nil, []core.AcquireOption{core.MaxHold(time.Hour)}, time.Hour, 30 * time.Second},
			"with those of the Locker": {[]core.AcquireOption{core.MaxHold(time.Minute)}, nil, time.Minute, 30 * time.Second},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					l := memLocker(t, core.WithDefaults(c.defaults...))
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
					defer cancel()
					start, finish := time.Now(), make(chan struct{})
					go func() {
						_ = run(ctx, locked(t, l, taskmw.Acquire(c.opts...)), `{"id":1}`, func(context.Context, *asynq.Task) error {
							<-finish
							return nil
						})
					}()
					synctest.Wait()
					next, err := l.Acquire(t.Context(), "order:1", core.MaxHold(time.Second))
					if err != nil {
						t.Fatal(err)
					}
					if held := time.Since(start); held < c.over || held > c.over+c.ttl {
						t.Errorf("held for %v, want %v to %v", held, c.over, c.over+c.ttl)
					}
					_ = next.Release(t.Context())
					close(finish)
				})
			})
		}
	})
}

type broken struct{ *memstore.Store }

func (broken) Acquire(context.Context, store.Claim) (store.Grant, error) {
	return store.Grant{}, fmt.Errorf("dial: %w", core.ErrUnavailable)
}

// deaf is a store that grants claims, and whose extensions always fail with
// ErrUnavailable.
type deaf struct{ *memstore.Store }

func (deaf) Extend(_ context.Context, claims []store.Claim) []store.Extension {
	answers := make([]store.Extension, len(claims))
	for i := range answers {
		answers[i].Err = core.ErrUnavailable
	}
	return answers
}
