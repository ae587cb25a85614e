package pipeline_test

import (
	"context"
	"sync"
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

// TestDo_BehindHungWorkers makes as many calls hang as there are workers. The calls that
// wait behind them must return at the limit, not sent.
func TestDo_BehindHungWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		client.AddHook(&sleeper{takes: time.Minute})
		p := pipeline.New(client)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				start := time.Now()
				_, err := take(t.Context(), p, newKey())
				if d := time.Since(start); d > pipeline.Limit+10*time.Millisecond {
					t.Errorf("call %d: got %v, want at most the limit", i, d)
				}
				if sent := pipeline.Sent(err); sent && i >= 8 {
					t.Errorf("call %d: got %v, want that it was not sent", i, err)
				}
			})
			// A call in flight for 5 ms does not delay the next one.
			time.Sleep(10 * time.Millisecond)
		}
		all.Wait()
		p.Close()
		client.Close()
		time.Sleep(2 * time.Minute)
	})
}
