package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/otellock"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/httpmw/stdmw"
)

// service is a shop with its locks and the locks' metrics.
type service struct {
	url     string
	prefix  string // the prefix of this run's keys, because a given Redis may have other keys
	network *network
	client  *redis.Client
	store   *redisstore.Store
	locks   *core.Locker
	server  *http.Server
	stopJob context.CancelFunc
	jobs    sync.WaitGroup
	unwatch func()
	lost    atomic.Int64 // the number of leases whose work was notified of the loss
}

func start(ctx context.Context, addr string, listener net.Listener) (*service, error) {
	s := &service{
		url:     "http://" + listener.Addr().String(),
		prefix:  fmt.Sprintf("observe-%d:", time.Now().UnixNano()),
		network: newNetwork(),
	}
	s.client = redis.NewClient(&redis.Options{Addr: addr, Dialer: s.network.dial, ContextTimeoutEnabled: true})
	if err := s.client.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("redis at %s: %w", addr, err)
	}
	// For metrics, a service needs a registry, the exporter, the observer and the gauges.
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	telemetry, err := otellock.New(otellock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	if err != nil {
		return nil, err
	}
	if s.store, err = redisstore.New(s.client, redisstore.WithPrefix(s.prefix)); err != nil {
		return nil, err
	}
	// The TTL is short, so that leases are lost even in a short cut. A real service
	// also has core.SlogObserver, which logs each loss with its hold and its context.
	s.locks, err = core.New(s.store, core.WithObserver(telemetry), core.WithDefaults(core.TTL(1500*time.Millisecond)))
	if err != nil {
		return nil, err
	}
	s.unwatch = telemetry.Watch(s.locks)
	runs, err := once.New(s.locks)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	s.routes(mux, runs)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.server.Serve(listener) }()

	jobs, cancel := context.WithCancel(context.Background())
	s.stopJob = cancel
	s.jobs.Go(func() { s.ship(jobs) })
	s.jobs.Go(func() { s.hang(jobs) })
	s.jobs.Go(func() { s.count(jobs) })
	return s, nil
}

func (s *service) routes(mux *http.ServeMux, runs *once.Once) {
	answer := func(work time.Duration) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			pause(r.Context(), work)
			if r.Context().Err() == nil {
				_, _ = fmt.Fprintln(w, "done")
			}
		})
	}
	idempotent := stdmw.Idempotent(runs, stdmw.Header("X-Customer"), stdmw.CallName("pay"))
	order := stdmw.Lock(s.locks, "order", stdmw.Path("id"))
	mux.Handle("POST /orders/{id}/pay", idempotent(order(answer(2*time.Millisecond))))

	sell := stdmw.Lock(s.locks, "stock", stdmw.Path("sku"), stdmw.Acquire(core.Wait(20*time.Millisecond)))
	look := stdmw.Lock(s.locks, "stock", stdmw.Path("sku"), stdmw.Acquire(core.Shared(), core.Wait(time.Second)))
	mux.Handle("POST /stock/{sku}", sell(answer(8*time.Millisecond)))
	mux.Handle("GET /stock/{sku}", look(answer(time.Millisecond)))

	// The route has no {id}. The metrics show this mistake.
	mux.Handle("POST /refunds/{order}", stdmw.Lock(s.locks, "refund", stdmw.Path("id"))(answer(0)))
}

// ship is a job that runs on one replica at a time. It works for as long as it has its
// lock.
func (s *service) ship(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.locks.Do(ctx, core.Key("shipping", "north"), func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if errors.Is(err, core.ErrLost) {
			s.lost.Add(1)
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// hang is a job that takes longer than its MaxHold.
func (s *service) hang(ctx context.Context) {
	for ctx.Err() == nil {
		_ = s.locks.Do(ctx, core.Key("report", "daily"), func(ctx context.Context) error {
			pause(ctx, time.Second)
			return nil
		}, core.MaxHold(700*time.Millisecond))
		pause(ctx, time.Second)
	}
}

// count is a job of short parts. Five workers of the process begin their parts at the
// same time, so they pass their lease on.
func (s *service) count(ctx context.Context) {
	for ctx.Err() == nil {
		var parts sync.WaitGroup
		for range 5 {
			parts.Go(func() {
				_ = s.locks.Do(ctx, core.Key("count", "shelves"), func(ctx context.Context) error {
					pause(ctx, time.Millisecond)
					return nil
				})
			})
		}
		parts.Wait()
		pause(ctx, 50*time.Millisecond)
	}
}

// cut cuts the network for the time by, once in each interval every. It returns the
// number of cuts.
func (s *service) cut(ctx context.Context, every, by time.Duration) (cuts int) {
	for {
		pause(ctx, every-by)
		if deadline, ok := ctx.Deadline(); ctx.Err() != nil || ok && time.Until(deadline) < by+time.Second {
			return cuts // leave time to recover before the load stops
		}
		cuts++
		fmt.Printf("the network to Redis is cut for %v\n", by)
		s.network.cutFor(ctx, by)
	}
}

// stop stops the service and deletes its keys in Redis.
func (s *service) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s.stopJob()
	s.jobs.Wait()
	err := errors.Join(s.server.Shutdown(ctx), s.locks.Close(ctx))
	s.unwatch()
	keys := s.client.Scan(ctx, 0, s.prefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		err = errors.Join(err, s.client.Del(ctx, keys.Val()).Err())
	}
	return errors.Join(err, keys.Err(), s.store.Close(), s.client.Close())
}
