package pipeline_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
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
			takeAll(t.Context(), p, newKeys(10))
			for i, x := range takeAll(t.Context(), p, newKeys(10)) {
				if x.Err != nil || x.Reply != int64(2) {
					t.Errorf("call %d: got %v, %v", i, x.Reply, x.Err)
				}
			}
		})
	}
}
