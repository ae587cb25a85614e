package pipeline_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/testserver"
)

// watcher is a hook that stores the context of a flight with the given number of calls.
// If it is patient, it waits until the context is done.
type watcher struct {
	echo
	calls   int
	patient bool
	ctx     context.Context
}

func (w *watcher) see(ctx context.Context, cmds ...redis.Cmder) error {
	if len(cmds) == w.calls && cmds[0].Name() != "ping" {
		w.ctx = ctx
		if w.patient {
			<-ctx.Done()
			return ctx.Err()
		}
	}
	for _, cmd := range cmds {
		answer(cmd, "{echo:1}")
	}
	return nil
}

func (w *watcher) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return w.see(ctx, cmd) }
}

func (w *watcher) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return w.see(ctx, cmds...) }
}

// TestClientContext_Ends checks that the contexts that a client gets are done when
// the calls have returned, or have taken too long.
func TestClientContext_Ends(t *testing.T) {
	t.Parallel()
	for name, calls := range map[string]int{"alone": 1, "alone with a hanging client": 1, "together": 5} {
		for _, patient := range []bool{false, true} {
			what, want := " with the calls", context.Canceled
			if patient {
				what, want = " after the limit", context.DeadlineExceeded
			}
			t.Run(name+what, func(t *testing.T) {
				t.Parallel()
				client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: name == "alone"})
				t.Cleanup(func() { client.Close() })
				w := &watcher{calls: calls, patient: patient}
				g := newGate()
				if calls > 1 {
					client.AddHook(g)
				}
				client.AddHook(w)
				p := newPipeline(t, client)
				if !patient {
					p.Patient()
				}
				p.Stall(time.Hour)
				errs := make([]error, 1)
				if calls > 1 {
					errs = crowd(t, p, g, newKeys(calls))
				} else {
					_, errs[0] = take(context.Background(), p, newKey())
				}
				for i, err := range errs {
					if patient != (err != nil) {
						t.Errorf("call %d: got %v", i, err)
					}
				}
				testserver.Eventually(t, time.Minute, "the calls are no more under way", p.Unused)
				if err := w.ctx.Err(); err != want {
					t.Errorf("the context ended with %v, want %v", err, want)
				}
			})
		}
	}
}

// TestFlightContext checks the effect of callers' contexts on the context of their
// flight. The only caller of a flight ends the flight, and one of several callers does
// not.
func TestFlightContext(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T, w *watcher) (*pipeline.Pipeline, *gate) {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		t.Cleanup(func() { client.Close() })
		g := newGate()
		if w.calls > 1 {
			client.AddHook(g)
		}
		client.AddHook(w)
		p := newPipeline(t, client)
		p.Patient()
		p.Stall(time.Hour)
		return p, g
	}
	t.Run("canceled caller alone", func(t *testing.T) {
		t.Parallel()
		w := &watcher{calls: 1, patient: true}
		p, _ := start(t, w)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		if _, err := take(ctx, p, newKey()); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
		testserver.Eventually(t, 50*time.Second, "the flight is over, long before the limit of a minute", p.Unused)
	})
	t.Run("deadline of caller alone", func(t *testing.T) {
		t.Parallel()
		w := &watcher{calls: 1}
		p, _ := start(t, w)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		if _, err := take(ctx, p, newKey()); err != nil {
			t.Fatal(err)
		}
		end, _ := ctx.Deadline()
		if got, _ := w.ctx.Deadline(); !got.Equal(end) {
			t.Errorf("got the deadline %v, want the caller's %v", got, end)
		}
	})
	t.Run("one of several", func(t *testing.T) {
		t.Parallel()
		w := &watcher{calls: 5}
		p, g := start(t, w)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for i, err := range crowd(t, p, g, newKeys(5), ctx, ctx, ctx, ctx, ctx) {
			if err != nil {
				t.Errorf("call %d: got %v", i, err)
			}
		}
		end, _ := ctx.Deadline()
		if got, _ := w.ctx.Deadline(); !got.After(end.Add(10 * time.Second)) {
			t.Errorf("got the deadline %v, want the limit of the calls, and not %v of the callers", got, end)
		}
	})
}

type panicking struct{ context.Context }

func (panicking) Deadline() (time.Time, bool) { panic("no deadline") }

// TestDo_PanickingContext checks that a context that panics fails only its own call.
func TestDo_PanickingContext(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	client.AddHook(&watcher{calls: 1})
	p := newPipeline(t, client)
	p.Patient()
	func() {
		defer func() { _ = recover() }()
		_, _ = take(panicking{context.Background()}, p, newKey())
	}()
	if _, err := take(context.Background(), p, newKey()); err != nil {
		t.Errorf("got %v for the next call", err)
	}
}

// breaker is a client whose pipelines fail without being executed while it is open.
type breaker struct {
	redis.UniversalClient
	open atomic.Bool
}

func (b *breaker) Pipeline() redis.Pipeliner {
	return &brokenPipe{b.UniversalClient.Pipeline(), b}
}

type brokenPipe struct {
	redis.Pipeliner
	of *breaker
}

func (p *brokenPipe) Exec(ctx context.Context) ([]redis.Cmder, error) {
	if p.of.open.Load() {
		return nil, errors.New("breaker open")
	}
	return p.Pipeliner.Exec(ctx)
}

// TestDo_BreakerForgetsCalls checks that calls that a client did not execute are not sent
// with later calls.
func TestDo_BreakerForgetsCalls(t *testing.T) {
	t.Parallel()
	own := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { own.Close() })
	g := newGate()
	own.AddHook(g)
	own.AddHook(&watcher{calls: 3})
	client := &breaker{UniversalClient: own}
	p := newPipeline(t, client)
	p.Patient()
	p.Stall(time.Hour)
	client.open.Store(true)
	for i, err := range crowd(t, p, g, newKeys(3)) {
		if err == nil {
			t.Errorf("call %d succeeded although the breaker was open", i)
		}
	}
	client.open.Store(false)
	g.close()
	for i, err := range crowd(t, p, g, newKeys(3)) {
		if err != nil {
			t.Errorf("call %d: got %v after the breaker was closed", i, err)
		}
	}
	if n := slices.Max(g.sent()); n != 3 {
		t.Errorf("got %d calls in a pipeline, want the 3 new ones", n)
	}
}
