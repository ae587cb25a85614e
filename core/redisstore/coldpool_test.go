package redisstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestAcquire_ColdPool makes a dial take longer than a lock with a short TTL allows for
// a call. The error names this limit, and later calls find a connection.
func TestAcquire_ColdPool(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for way, edit := range ways {
		if edit == nil {
			edit = func(*redis.Options) {}
		}
		t.Run("client "+way, func(t *testing.T) {
			t.Parallel()
			proxy := testserver.NewRedisProxy(t, server.Addr)
			proxy.Delay(300 * time.Millisecond) // the call has 500 ms
			l, err := core.New(newStore(t, testclient.Redis(t, proxy.Addr, edit)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close(context.Background()) })
			key := claimed().Key
			_, err = l.Acquire(t.Context(), key, core.TTL(3*time.Second), core.Wait(0))
			wantIs(t, "acquire", err, store.ErrUnavailable)
			wantIs(t, "acquire", err, context.DeadlineExceeded)
			if want := "no answer within 500 ms, the limit of a call where the TTL is 3 s"; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			proxy.Delay(20 * time.Millisecond)
			testserver.Eventually(t, time.Minute, "a lock is granted", func() bool {
				lease, err := l.Acquire(t.Context(), key, core.TTL(3*time.Second), core.Wait(0))
				if err == nil {
					lease.Release(t.Context())
				}
				return err == nil
			})
		})
	}
}
