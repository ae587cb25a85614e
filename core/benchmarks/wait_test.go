package benchmarks

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore/redistest"
)

// BenchmarkHandOff is the time from the call of a release to the return of the
// acquire of a waiter in another process (here: with clients of its own).
func BenchmarkHandOff(b *testing.B) {
	server := redistest.Start(b)
	client := func() *redis.Client { return redistest.Client(b, server.Addr) }
	b.Run("redislock polling at 10ms", func(b *testing.B) {
		one, other := redislock.New(client()), redislock.New(client())
		opts := &redislock.Options{RetryStrategy: redislock.LinearBackoff(10 * time.Millisecond)}
		handOff(b, func(locks int) (func() error, error) {
			lock, err := []*redislock.Client{one, other}[locks].Obtain(b.Context(), "bench:handoff", ttl, opts)
			if err != nil {
				return nil, err
			}
			return func() error { return lock.Release(context.Background()) }, nil
		})
	})
	b.Run("lockkit", func(b *testing.B) {
		lockers := []*core.Locker{newLocker(b, client()), newLocker(b, client())}
		handOff(b, func(locks int) (func() error, error) {
			lease, err := lockers[locks].Acquire(b.Context(), "bench:handoff")
			if err != nil {
				return nil, err
			}
			return func() error { return lease.Release(context.Background()) }, nil
		})
	})
}

// handOff passes one lock to and fro.
func handOff(b *testing.B, acquire func(process int) (release func() error, err error)) {
	var took []time.Duration
	release, err := acquire(0)
	if err != nil {
		b.Fatal(err)
	}
	process := 0
	for b.Loop() {
		process = 1 - process
		type grant struct {
			at      time.Time
			release func() error
			err     error
		}
		granted := make(chan grant, 1)
		go func() {
			r, err := acquire(process)
			granted <- grant{time.Now(), r, err}
		}()
		// The waiter has to be waiting; a free lock is another benchmark.
		time.Sleep(3 * time.Millisecond)
		start := time.Now()
		if err := release(); err != nil {
			b.Fatal(err)
		}
		g := <-granted
		if g.err != nil {
			b.Fatal(g.err)
		}
		took = append(took, g.at.Sub(start))
		release = g.release
	}
	if err := release(); err != nil {
		b.Fatal(err)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkWaiters counts what the server is asked while 200 goroutines of one
// process wait for a held key.
func BenchmarkWaiters(b *testing.B) {
	server := redistest.Start(b)
	const waiters = 200
	wait := func(b *testing.B, acquire func(ctx context.Context) error) {
		for b.Loop() {
			ctx, cancel := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			for range waiters {
				wg.Go(func() {
					if acquire(ctx) == nil {
						b.Error("a held key was granted")
					}
				})
			}
			time.Sleep(100 * time.Millisecond)
			before := commands(b, server)
			const span = 3 * time.Second
			time.Sleep(span)
			b.ReportMetric(float64(commands(b, server)-before)/span.Seconds(), "commands/s")
			cancel()
			wg.Wait()
		}
		b.ReportMetric(0, "ns/op")
	}
	b.Run("redislock polling at 10ms", func(b *testing.B) {
		locks := redislock.New(redistest.Client(b, server.Addr))
		if _, err := locks.Obtain(b.Context(), "bench:held:1", time.Minute, nil); err != nil {
			b.Fatal(err)
		}
		wait(b, func(ctx context.Context) error {
			_, err := locks.Obtain(ctx, "bench:held:1", time.Minute,
				&redislock.Options{RetryStrategy: redislock.LinearBackoff(10 * time.Millisecond)})
			return err
		})
	})
	b.Run("lockkit", func(b *testing.B) {
		holder, locks := newLocker(b, redistest.Client(b, server.Addr)), newLocker(b, redistest.Client(b, server.Addr))
		lease, err := holder.Acquire(b.Context(), "bench:held:2")
		if err != nil {
			b.Fatal(err)
		}
		wait(b, func(ctx context.Context) error {
			_, err := locks.Acquire(ctx, "bench:held:2")
			return err
		})
		if err := lease.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
	})
}

var processed = regexp.MustCompile(`total_commands_processed:(\d+)`)

// commands is how many commands the server has been sent, this question
// included.
func commands(tb testing.TB, server *redistest.Server) int {
	tb.Helper()
	m := processed.FindStringSubmatch(fmt.Sprint(server.Do("INFO", "stats")))
	if m == nil {
		tb.Fatal("INFO stats has no total_commands_processed")
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		tb.Fatal(err)
	}
	return n
}
