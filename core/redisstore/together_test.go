package redisstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// farHook is a hook that makes each round trip of a Store take longer, and counts the
// round trips.
type farHook struct {
	trip  time.Duration
	trips *atomic.Int64
}

func (farHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h farHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.travel(cmd)
		return next(ctx, cmd)
	}
}

func (h farHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.travel(cmds[0])
		return next(ctx, cmds)
	}
}

func (h farHook) travel(cmd redis.Cmder) {
	if ofLock(cmd) {
		h.trips.Add(1)
		time.Sleep(h.trip)
	}
}

func TestReleaseManyKeys(t *testing.T) {
	t.Parallel()
	const keys = 301
	for name, opts := range map[string][]redisstore.Option{"usual": nil, "plain": {redisstore.WithPlainKeys()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t)
			client := testclient.Redis(t, server.Addr)
			l, err := core.New(newStore(t, client, opts...))
			if err != nil {
				t.Fatal(err)
			}
			var also []string
			for i := 1; i < keys; i++ {
				also = append(also, fmt.Sprintf("order:%d", i))
			}
			lease, err := l.Acquire(t.Context(), "order", core.Also(also...))
			if err != nil {
				t.Fatal(err)
			}
			var trips atomic.Int64
			client.AddHook(farHook{20 * time.Millisecond, &trips})
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("got %v, want nil", err)
			}
			if n := trips.Load(); n > keys/2 {
				t.Errorf("got %d round trips for %d keys, want a few", n, keys)
			} else {
				t.Logf("%d round trips for %d keys", n, keys)
			}
			if err := l.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
