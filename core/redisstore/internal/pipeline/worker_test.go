package pipeline_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestCaller_MeetsWorkers(t *testing.T) {
	t.Parallel()
	p := newPatient(t, testserver.StartRedis(t).Addr)
	p.Stall(time.Nanosecond) // every worker counts as stalled, so that there are many
	calls := tally.AllTrials(2000)
	var wg sync.WaitGroup
	for i := range 16 {
		ctx := t.Context()
		if i%2 == 0 {
			ctx = context.Background() // so this caller sends its calls itself
		}
		wg.Go(func() {
			for range calls {
				c := newKey()
				if _, err := take(ctx, p, c); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestSilentNetwork(t *testing.T) {
	t.Parallel()
	proxy := testserver.NewRedisProxy(t, testserver.StartRedis(t).Addr)
	p := newPipeline(t, testclient.Redis(t, proxy.Addr, func(o *redis.Options) {
		// The calls of this client hang on a dead connection until the client is
		// closed.
		o.ContextTimeoutEnabled, o.ReadTimeout, o.PoolSize = false, -1, 50
	}))
	testserver.Eventually(t, time.Minute, "the server knows the script", func() bool {
		_, err := take(t.Context(), p, newKey())
		return err == nil
	})
	const hanging = 8 // the maximum number of workers
	fault := proxy.Inject(testserver.Match{Script: "acquire", Times: hanging}, testserver.DropReply)
	var wg sync.WaitGroup
	for range hanging {
		n := proxy.Times(fault)
		wg.Go(func() {
			_, err := take(t.Context(), p, newKey())
			// On a busy machine, a call that was not sent is repeated.
			for err != nil && !pipeline.Sent(err) && proxy.Times(fault) == n && t.Context().Err() == nil {
				_, err = take(t.Context(), p, newKey())
			}
			unknown(t, "the call whose reply was lost", err)
		})
		testserver.Eventually(t, 20*time.Second, "it hangs", func() bool { return proxy.Times(fault) > n })
	}
	wg.Wait()
	testserver.Eventually(t, 30*time.Second, "calls get through again", func() bool {
		_, err := take(t.Context(), p, newKey())
		return err == nil
	})
}
