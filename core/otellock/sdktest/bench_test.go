package sdktest_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/otellock"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// BenchmarkLocks measures the cost of Telemetry for 64 goroutines, with one key per
// goroutine and with one key for all goroutines.
func BenchmarkLocks(b *testing.B) {
	server := testserver.StartRedis(b)
	for _, keys := range []string{"own keys", "one key"} {
		for _, with := range []bool{false, true} {
			name := keys + " without"
			if with {
				name = keys + " with"
			}
			b.Run(name, func(b *testing.B) {
				s := &stage{prefix: fmt.Sprintf("stage-%d:", stages.Add(1)), proxy: testserver.NewRedisProxy(b, server.Addr)}
				var opts []core.Option
				var tel *otellock.Telemetry
				if with {
					var err error
					provider := sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader()))
					if tel, err = otellock.New(otellock.WithMeterProvider(provider)); err != nil {
						b.Fatal(err)
					}
					opts = append(opts, core.WithObserver(tel))
				}
				l := s.locker(b, testclient.Redis(b, server.Addr), opts...)
				if with {
					defer tel.Watch(l)()
				}
				var next atomic.Int64
				b.ReportAllocs()
				b.SetParallelism(max(1, 64/runtime.GOMAXPROCS(0)))
				b.RunParallel(func(pb *testing.PB) {
					key := "order:1"
					if keys == "own keys" {
						key = fmt.Sprint("order:", next.Add(1))
					}
					for pb.Next() {
						if err := l.Do(b.Context(), key, func(context.Context) error { return nil }); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}

// BenchmarkObserve measures one measurement.
func BenchmarkObserve(b *testing.B) {
	tel, err := otellock.New(otellock.WithMeterProvider(sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader()))))
	if err != nil {
		b.Fatal(err)
	}
	e := core.Event{Kind: core.Acquired, Name: "order", Mode: core.ModeExclusive, Wait: time.Millisecond}
	b.ReportAllocs()
	for b.Loop() {
		tel.Observe(context.Background(), e)
	}
}
