package grpcmw_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/grpcmw"
)

// BenchmarkOnRedis compares the interceptor with hand-written code that makes the same
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
	req, info := &Order{Id: "42"}, &grpc.UnaryServerInfo{FullMethod: Orders_Pay_FullMethodName}
	handler := func(context.Context, any) (any, error) { return &Receipt{Id: "42"}, nil }
	ctxOf := func(k string) context.Context {
		return grpc.NewContextWithServerTransportStream(metadata.NewIncomingContext(context.Background(), metadata.Pairs(key, k)), transport{})
	}
	do := func(k string) error {
		ctx := ctxOf(k)
		request, err := proto.Marshal(req)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(request)
		c := once.Call{Name: "hand", Scope: "any", Key: metadata.ValueFromIncomingContext(ctx, key)[0], Fingerprint: sum[:]}
		out, err := runs.Do(ctx, c, func(ctx context.Context) (once.Answer, error) {
			reply, err := handler(ctx, req)
			if err != nil {
				return once.Answer{}, err
			}
			value, err := proto.Marshal(reply.(*Receipt))
			return once.Answer{Value: value}, err
		})
		if err != nil {
			return err
		}
		return proto.Unmarshal(out.Value, new(Receipt))
	}
	through := func(r grpcmw.Rule) func(string) error {
		i := grpcmw.UnaryServerInterceptor(on(Orders_Pay_FullMethodName, r))
		return func(k string) error {
			_, err := i(ctxOf(k), req, info, handler)
			return err
		}
	}
	lock, idempotent := through(grpcmw.Lock(locks, "order", grpcmw.Field("id"))), through(grpcmw.Idempotent(runs, grpcmw.AnyCaller()))
	for _, c := range []struct {
		name            string
		byHand, through func(key string) error
		key             func() string
	}{
		{"one lock", func(k string) error {
			return locks.Do(ctxOf(k), core.Key("order", req.GetId()), func(ctx context.Context) error {
				_, err := handler(ctx, req)
				return err
			}, core.Wait(0), core.Name("order"))
		}, lock, rand.Text},
		{"first run", do, idempotent, rand.Text},
		{"one replay", do, idempotent, func() string { return "again" }},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took [2][]time.Duration
			for b.Loop() {
				// The functions run alternately, so that both run under the same load.
				for i, call := range []func(string) error{c.byHand, c.through} {
					key, start := c.key(), time.Now()
					if err := call(key); err != nil {
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
			b.ReportMetric(median(1), "ns/interceptor")
			b.ReportMetric(median(1)/median(0), "ratio")
		})
	}
}
