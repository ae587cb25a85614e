package pipeline_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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

// TestTheClientsContextEnds checks that the contexts that a client gets are done when
// the calls have returned, or have taken too long.
func TestTheClientsContextEnds(t *testing.T) {
	t.Parallel()
	for name, calls := range map[string]int{"alone": 1, "alone, a client that can hang": 1, "together": 5} {
		for _, patient := range []bool{false, true} {
			what, want := ", with the calls", context.Canceled
			if patient {
				what, want = ", after the limit", context.DeadlineExceeded
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
