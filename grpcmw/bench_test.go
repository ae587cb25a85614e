package grpcmw_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redisstore/redistest"
	"github.com/lockkit/lockkit/grpcmw"
)

// BenchmarkOnRedis measures the interceptor beside code that is written by hand
// and makes the same calls to the same Redis.
func BenchmarkOnRedis(b *testing.B) {
	store, err := redisstore.New(redistest.Client(b, redistest.Start(b).Addr))
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
		name string
		call func() error
	}{
		{"lock/by hand", func() error {
			return locks.Do(ctxOf("k"), core.Key("order", req.GetId()), func(ctx context.Context) error {
				_, err := handler(ctx, req)
				return err
			}, core.Wait(0), core.Name("order"))
		}},
		{"lock/grpcmw", func() error { return lock("k") }},
		{"first run/by hand", func() error { return do(rand.Text()) }},
		{"first run/grpcmw", func() error { return idempotent(rand.Text()) }},
		{"replay/by hand", func() error { return do("again") }},
		{"replay/grpcmw", func() error { return idempotent("again") }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
