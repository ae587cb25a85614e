package benchmarks

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redisstore/redistest"
)

const ttl = 30 * time.Second

// cycle acquires and releases one free key.
type cycle func(ctx context.Context, key string) error

// contenders are who is compared.
var contenders = []struct {
	name string
	on   func(tb testing.TB, client *redis.Client) cycle
}{
	{"bare commands", func(tb testing.TB, client *redis.Client) cycle {
		release := redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)
		return func(ctx context.Context, key string) error {
			if err := client.SetArgs(ctx, key, "owner", redis.SetArgs{Mode: "NX", TTL: ttl}).Err(); err != nil {
				return err
			}
			return release.Run(ctx, client, []string{key}, "owner").Err()
		}
	}},
	{"redislock", func(tb testing.TB, client *redis.Client) cycle {
		locks := redislock.New(client)
		return func(ctx context.Context, key string) error {
			lock, err := locks.Obtain(ctx, key, ttl, nil)
			if err != nil {
				return err
			}
			return lock.Release(ctx)
		}
	}},
	{"lockkit", func(tb testing.TB, client *redis.Client) cycle { return kit(tb, client) }},
	{"lockkit plain keys", func(tb testing.TB, client *redis.Client) cycle {
		return kit(tb, client, redisstore.WithPlainKeys())
	}},
}

// kit is a cycle of the kit, with everything on that is on by default: token,
// watchdog, notice of loss.
func kit(tb testing.TB, client *redis.Client, opts ...redisstore.Option) cycle {
	locks := newLocker(tb, client, opts...)
	return func(ctx context.Context, key string) error {
		lease, err := locks.TryAcquire(ctx, key)
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}
}

func newLocker(tb testing.TB, client *redis.Client, opts ...redisstore.Option) *core.Locker {
	tb.Helper()
	store, err := redisstore.New(client, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	locks, err := core.New(store)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := locks.Close(context.Background()); err != nil {
			tb.Error(err)
		}
		if err := store.Close(); err != nil {
			tb.Error(err)
		}
	})
	return locks
}

// BenchmarkCycle is an uncontended acquire and release, by one goroutine and by
// 64 on keys of their own.
func BenchmarkCycle(b *testing.B) {
	server := redistest.Start(b)
	for _, goroutines := range []int{1, 64} {
		for _, c := range contenders {
			b.Run(fmt.Sprintf("goroutines=%d/%s", goroutines, c.name), func(b *testing.B) {
				client := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: goroutines, ContextTimeoutEnabled: true})
				b.Cleanup(func() { client.Close() })
				run := c.on(b, client)
				if err := run(b.Context(), "bench:warm"); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				var next atomic.Int64
				b.SetParallelism(goroutines / 2) // for each of two cores
				if goroutines == 1 {
					for b.Loop() {
						if err := run(context.Background(), "bench:0"); err != nil {
							b.Fatal(err)
						}
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					key := "bench:" + strconv.FormatInt(next.Add(1), 10)
					for pb.Next() {
						if err := run(b.Context(), key); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}
