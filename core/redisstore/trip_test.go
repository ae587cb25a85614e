package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestWhoSendsByItselfMeetsOtherTrips(t *testing.T) {
	t.Parallel()
	s := newStore(t, testclient.Redis(t, testserver.StartRedis(t).Addr))
	s.Stall(time.Nanosecond) // every trip counts as stalled, so that there are many
	var wg sync.WaitGroup
	for i := range 16 {
		ctx := t.Context()
		if i%2 == 0 {
			ctx = context.Background() // sends by itself
		}
		wg.Go(func() {
			for range 1000 {
				c := claimed()
				if _, err := s.Acquire(ctx, c); err != nil {
					t.Errorf("acquire: %v", err)
				}
				if err := s.Release(ctx, c); err != nil {
					t.Errorf("release: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func TestASilentNetworkPasses(t *testing.T) {
	t.Parallel()
	proxy := testserver.NewRedisProxy(t, testserver.StartRedis(t).Addr)
	s := newStore(t, testclient.Redis(t, proxy.Addr, func(o *redis.Options) {
		// Its calls hang on a dead connection for as long as the client lives.
		o.ContextTimeoutEnabled, o.ReadTimeout, o.PoolSize = false, -1, 50
	}))
	acquire(t, s, claimed())
	const hanging = 8 // as many trips as there can be at a time
	fault := proxy.Inject(testserver.Match{Script: "acquire", Times: hanging}, testserver.DropReply)
	var wg sync.WaitGroup
	for range hanging {
		n := proxy.Times(fault)
		wg.Go(func() {
			if _, err := s.Acquire(t.Context(), claimed()); err == nil || errors.Is(err, core.ErrUnavailable) {
				t.Errorf("the call whose reply was lost: got %v, want an error of unknown outcome", err)
			}
		})
		testserver.Eventually(t, 20*time.Second, "it hangs", func() bool { return proxy.Times(fault) > n })
	}
	wg.Wait()
	testserver.Eventually(t, 30*time.Second, "calls get through again", func() bool {
		_, err := s.Acquire(t.Context(), claimed())
		return err == nil
	})
}
