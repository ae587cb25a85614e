package taskmw_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/taskmw"
)

// BenchmarkBusyKey runs for ten seconds. One key has 1,000 tasks, each of 100 ms. The
// benchmark reports the number of these tasks done per second, and the share of the
// tasks of other keys that are done in this time.
func BenchmarkBusyKey(b *testing.B) {
	const span = 10 * time.Second
	addr := testserver.StartRedis(b).Addr
	store, err := redisstore.New(testclient.Redis(b, addr))
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	locks, err := core.New(store)
	if err != nil {
		b.Fatal(err)
	}
	client := asynq.NewClientFromRedisClient(testclient.Redis(b, addr))
	enqueue := func(kind string) {
		if _, err := client.Enqueue(asynq.NewTask(kind, fmt.Appendf(nil, `{"id":%q}`, kind))); err != nil {
			b.Error(err)
		}
	}
	for range 1000 {
		enqueue("busy")
	}
	var busy, others atomic.Int32
	h := taskmw.Lock(locks, "order", taskmw.Payload("id"))(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		if t.Type() == "busy" {
			time.Sleep(100 * time.Millisecond)
			busy.Add(1)
		} else {
			others.Add(1)
		}
		return nil
	}))
	server := asynq.NewServerFromRedisClient(testclient.Redis(b, addr), taskmw.Configure(asynq.Config{Concurrency: 10, LogLevel: asynq.FatalLevel}))
	if err := server.Start(h); err != nil {
		b.Fatal(err)
	}
	defer server.Shutdown()
	sent := 0
	start := time.Now()
	for b.Loop() {
		for ; time.Since(start) < span; sent++ {
			enqueue(fmt.Sprintf("other %d", sent))
			time.Sleep(50 * time.Millisecond)
		}
	}
	b.ReportMetric(float64(busy.Load())/span.Seconds(), "busy/s")
	b.ReportMetric(float64(others.Load())/float64(sent), "others-done")
}

// BenchmarkOnRedis compares the middleware with hand-written code that makes the same
// calls to the same Redis.
func BenchmarkOnRedis(b *testing.B) {
	store, err := redisstore.New(testclient.Redis(b, testserver.StartRedis(b).Addr))
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	locks, err := core.New(store)
	if err != nil {
		b.Fatal(err)
	}
	runs, err := once.New(locks)
	if err != nil {
		b.Fatal(err)
	}
	done := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	id := func(t *asynq.Task) (string, error) {
		var in struct{ ID string }
		err := json.Unmarshal(t.Payload(), &in)
		return in.ID, err
	}
	locked := asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		key, err := id(t)
		if err != nil {
			return err
		}
		return locks.Do(ctx, core.Key("hand", key), func(ctx context.Context) error { return done.ProcessTask(ctx, t) }, core.Wait(time.Second))
	})
	idempotent := asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		key, err := id(t)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(t.Payload())
		_, err = runs.Do(ctx, once.Call{Name: "hand", Key: key, Fingerprint: sum[:]}, func(ctx context.Context) (once.Answer, error) {
			return once.Answer{}, done.ProcessTask(ctx, t)
		})
		return err
	})
	for _, c := range []struct {
		name       string
		byHand     asynq.Handler
		middleware asynq.MiddlewareFunc
		key        func() string
	}{
		{"one lock", locked, taskmw.Lock(locks, "order", taskmw.Payload("id")), rand.Text},
		{"first run", idempotent, taskmw.Idempotent(runs, "order", taskmw.Payload("id")), rand.Text},
		{"one replay", idempotent, taskmw.Idempotent(runs, "order", taskmw.Payload("id")), func() string { return "again" }},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took [2][]time.Duration
			for b.Loop() {
				// The functions run alternately, so that both run under the same load.
				for i, h := range []asynq.Handler{c.byHand, c.middleware(done)} {
					task := asynq.NewTask("pay", fmt.Appendf(nil, `{"id":%q}`, c.key()))
					start := time.Now()
					if err := h.ProcessTask(b.Context(), task); err != nil {
						b.Fatal(err)
					}
					took[i] = append(took[i], time.Since(start))
				}
			}
			median := func(i int) float64 {
				slices.Sort(took[i])
				return float64(took[i][len(took[i])/2])
			}
			b.ReportMetric(median(0), "ns/by-hand")
			b.ReportMetric(median(1), "ns/middleware")
			b.ReportMetric(median(1)/median(0), "ratio")
		})
	}
}
