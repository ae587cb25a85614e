package benchmarks

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore/redistest"
)

// runner runs a call of its key, or replays its answer.
type runner func(ctx context.Context, key string) error

// byHand are two round trips for a first run and one for a replay, as they are
// often written: no extension, no attempt, no fingerprint.
func byHand(client *redis.Client) runner {
	begin := redis.NewScript(`
local kept = redis.call('get', KEYS[1])
if kept then return kept end
redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
return false`)
	finish := redis.NewScript(`
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3])
return 1`)
	return func(ctx context.Context, key string) error {
		err := begin.Run(ctx, client, []string{key}, "begun by me", ttl.Milliseconds()).Err()
		if err != redis.Nil {
			return err
		}
		return finish.Run(ctx, client, []string{key}, "begun by me", answer, (24 * time.Hour).Milliseconds()).Err()
	}
}

// withLocker are the calls that once makes, without once.
func withLocker(l *core.Locker) runner {
	return func(ctx context.Context, key string) error {
		lease, _, err := l.Begin(ctx, key, core.Record{Value: []byte("begun"), Retain: 24 * time.Hour}, core.Wait(0))
		if lease == nil || err != nil {
			return err
		}
		return lease.Finish(ctx, core.Record{Value: answer, Attempt: 1, Done: true, Retain: 24 * time.Hour})
	}
}

func withOnce(tb testing.TB, l *core.Locker) runner {
	o, err := once.New(l)
	if err != nil {
		tb.Fatal(err)
	}
	print := make([]byte, 32)
	return func(ctx context.Context, key string) error {
		_, err := o.Do(ctx, once.Call{Name: "bench", Scope: "tenant", Key: key, Fingerprint: print},
			func(context.Context) (once.Answer, error) { return once.Answer{Value: answer}, nil })
		return err
	}
}

var answer = make([]byte, 1024)

// BenchmarkOnce is a first run of nothing that answers 1 KiB, and the replay of
// that answer, by one goroutine.
func BenchmarkOnce(b *testing.B) {
	server := redistest.Start(b)
	for _, c := range []struct {
		name string
		on   func(tb testing.TB, client *redis.Client) runner
	}{
		{"scripts by hand", func(_ testing.TB, client *redis.Client) runner { return byHand(client) }},
		{"Begin and Finish", func(tb testing.TB, client *redis.Client) runner { return withLocker(newLocker(tb, client)) }},
		{"once", func(tb testing.TB, client *redis.Client) runner { return withOnce(tb, newLocker(tb, client)) }},
	} {
		b.Run("first run/"+c.name, func(b *testing.B) {
			run, i := c.on(b, redistest.Client(b, server.Addr)), 0
			b.ReportAllocs()
			for b.Loop() {
				i++
				if err := run(b.Context(), c.name+strconv.Itoa(b.N)+":"+strconv.Itoa(i)); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			server.Do("FLUSHALL")
		})
		b.Run("replay/"+c.name, func(b *testing.B) {
			run := c.on(b, redistest.Client(b, server.Addr))
			b.ReportAllocs()
			for b.Loop() {
				if err := run(b.Context(), c.name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
