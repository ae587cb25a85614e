package pipeline_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestWorkers_FitThePool uses a client with few connections, which fails at once if more
// connections are needed.
func TestWorkers_FitThePool(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for _, few := range []int{1, 2} {
		for _, brief := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d connections time-outs %v", few, brief), func(t *testing.T) {
				t.Parallel()
				p := newPatient(t, server.Addr, func(o *redis.Options) {
					o.MaxActiveConns, o.ContextTimeoutEnabled = few, brief
				}, testclient.OnePool)
				p.Stall(time.Hour)
				p.Enough(4)
				var wg sync.WaitGroup
				for range 24 {
					wg.Go(func() {
						for range 20 {
							if _, err := take(context.Background(), p, newKey()); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}
