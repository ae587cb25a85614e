package pipeline_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
)

// sleeper is a hook that ignores the context of a call, and takes a fixed time.
type sleeper struct {
	echo
	takes time.Duration
}

func (h *sleeper) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		time.Sleep(h.takes)
		answer(cmd, "{echo:1}")
		return nil
	}
}

func TestDo_WithHookThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &sleeper{takes: 10 * time.Second}
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
		client.AddHook(h)
		p := pipeline.New(client)
		took := func() time.Duration {
			start := time.Now()
			_, _ = take(context.Background(), p, newKey())
			return time.Since(start)
		}
		if d := took(); d != h.takes {
			t.Errorf("got %v for the first call, which its caller sends by itself, want %v", d, h.takes)
		}
		for range 3 {
			if d := took(); d > pipeline.Limit+10*time.Millisecond {
				t.Errorf("got %v for a later call, want at most the limit", d)
			}
		}
		time.Sleep(h.takes)
		synctest.Wait()
		h.takes = 0
		if d := took(); d != 0 {
			t.Errorf("got %v when the hook hangs no more, want 0s", d)
		}
		p.Close()
		client.Close()
		time.Sleep(time.Minute)
	})
}
