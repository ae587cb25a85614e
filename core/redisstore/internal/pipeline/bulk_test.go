package pipeline_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
)

// script is a hook that answers the first pipelines by the functions in acts, one after
// the other, and all later pipelines by the last function.
type script struct {
	echo
	acts []func(cmds []redis.Cmder) error
	next atomic.Int64
}

func (h *script) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		return h.acts[min(int(h.next.Add(1)), len(h.acts))-1](cmds)
	}
}

type unknownScript struct{}

func (unknownScript) Error() string { return "NOSCRIPT No matching script" }
func (unknownScript) RedisError()   {}

// TestBulk_OwnAnswers makes the checks of TestCall_OwnAnswer for
// the calls of a DoAll.
func TestBulk_OwnAnswers(t *testing.T) {
	t.Parallel()
	say := func(cmds []redis.Cmder, v any) {
		for _, cmd := range cmds {
			cmd.(interface{ SetVal(any) }).SetVal(v)
			cmd.SetErr(nil)
		}
	}
	for name, fail := range map[string]func([]redis.Cmder) error{
		"fails":           func([]redis.Cmder) error { return errors.New("too slow") },
		"panics":          func([]redis.Cmder) error { panic("a hook") },
		"answers nothing": func([]redis.Cmder) error { return nil },
		"answers a part":  func(cmds []redis.Cmder) error { say(cmds[:3], int64(0)); return nil },
		"fails on unknown script": func(cmds []redis.Cmder) error {
			for _, cmd := range cmds {
				cmd.SetErr(unknownScript{})
			}
			return errors.New("too slow")
		},
		"answers and fails": func(cmds []redis.Cmder) error { say(cmds, int64(0)); return errors.New("too slow") },
	} {
		t.Run("the client "+name, func(t *testing.T) {
			t.Parallel()
			var given []redis.Cmder
			h := &script{acts: []func([]redis.Cmder) error{
				func(cmds []redis.Cmder) error {
					given = slices.Clone(cmds)
					return fail(cmds)
				},
				func(cmds []redis.Cmder) error {
					if cmds[0].Name() == "evalsha" {
						say(given, int64(0)) // as from a server, but much later
					}
					say(cmds, int64(2))
					return nil
				},
			}}
			client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
			t.Cleanup(func() { client.Close() })
			client.AddHook(h)
			p := newPipeline(t, client)
			p.Patient()
			takeAll(t.Context(), p, newKeys(10))
			for i, x := range takeAll(t.Context(), p, newKeys(10)) {
				if x.Err != nil || x.Reply != int64(2) {
					t.Errorf("call %d: got %v, %v", i, x.Reply, x.Err)
				}
			}
		})
	}
}

// TestBulk_DoneContext makes calls under a context that is done. The client must not get
// them. The test makes many calls, because a call that starts can still lose the race
// against its caller.
func TestBulk_DoneContext(t *testing.T) {
	t.Parallel()
	h := &script{acts: []func([]redis.Cmder) error{func([]redis.Cmder) error { return errors.New("too slow") }}}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { client.Close() })
	client.AddHook(h)
	p := newPipeline(t, client)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the sibling failed")
	cancel(cause)
	for range 1000 {
		for i, x := range takeAll(ctx, p, newKeys(10)) {
			if pipeline.Sent(x.Err) || !errors.Is(x.Err, cause) {
				t.Fatalf("call %d: got %v, want an error of what was not sent, with the cause", i, x.Err)
			}
		}
	}
	if n := h.next.Load(); n > 0 {
		t.Errorf("the client got %d pipelines, want none", n)
	}
}
