package pipeline_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
)

// deadlines is an echo that notes until when the client is told that calls may take.
type deadlines struct {
	echo
	alone    []time.Time
	together []time.Time
}

func (h *deadlines) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		end, _ := ctx.Deadline()
		h.alone = append(h.alone, end)
		answer(cmd, read(cmd))
		return nil
	}
}

func (h *deadlines) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		end, _ := ctx.Deadline()
		h.together = append(h.together, end)
		for _, cmd := range cmds {
			answer(cmd, read(cmd))
		}
		return nil
	}
}

// A client that compares the deadline of a call to the wall clock, as go-redis does,
// is not misled where that was set while the process ran.
func TestDeadlinesOfTheWallClock(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]int64{"set back": -3600, "set forward": 3600} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, g, h := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true}), newGate(), &deadlines{}
			t.Cleanup(func() { client.Close() })
			client.AddHook(g)
			client.AddHook(h)
			p := newPipeline(t, client)
			p.Stall(time.Hour)
			p.StepWallClock(step)
			begun := time.Now().Round(0)
			all := make([]string, 5)
			for i := range all {
				all[i] = fmt.Sprintf("{echo:%d}", 1+i)
			}
			for i, err := range crowd(t, p, g, all) {
				if err != nil {
					t.Errorf("call %d: %v", i, err)
				}
			}
			if _, err := take(context.Background(), p, "{echo:9}"); err != nil {
				t.Error(err)
			}
			least, most := begun.Add(pipeline.Limit), time.Now().Round(0).Add(pipeline.Limit)
			for _, end := range append(h.alone, h.together...) {
				if end := end.Round(0); end.Before(least) || end.After(most) {
					t.Errorf("until %v, want %v to %v", end, least, most)
				}
			}
			if len(h.alone) < 2 || len(h.together) == 0 {
				t.Errorf("vacuous: %d calls alone, %d together", len(h.alone), len(h.together))
			}
		})
	}
}
