package grpcmw_test

import (
	"context"
	"strconv"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/grpcmw"
)

// transport is a connection that accepts every header.
type transport struct{}

func (transport) Method() string               { return Orders_Pay_FullMethodName }
func (transport) SetHeader(metadata.MD) error  { return nil }
func (transport) SendHeader(metadata.MD) error { return nil }
func (transport) SetTrailer(metadata.MD) error { return nil }

// TestAllocations limits the interceptor's additional allocations, compared with
// hand-written code that makes the same calls to the store.
func TestAllocations(t *testing.T) {
	locks, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	runs, err := once.New(locks)
	if err != nil {
		t.Fatal(err)
	}
	req, info := &Order{Id: "42", I64: 7}, &grpc.UnaryServerInfo{FullMethod: Orders_Pay_FullMethodName}
	ctx := grpc.NewContextWithServerTransportStream(metadata.NewIncomingContext(t.Context(), metadata.Pairs(key, "k")), transport{})
	handler := func(context.Context, any) (any, error) { return &Receipt{Id: "42"}, nil }
	intercept := func(r grpcmw.Rule) func() {
		i := grpcmw.UnaryServerInterceptor(on(Orders_Pay_FullMethodName, r))
		return func() {
			if _, err := i(ctx, req, info, handler); err != nil {
				t.Error(err)
			}
		}
	}

	t.Run("lock by rule", func(t *testing.T) {
		byHand := testing.AllocsPerRun(200, func() {
			err := locks.Do(ctx, core.Key("order", req.GetId()), func(ctx context.Context) error {
				_, err := handler(ctx, req)
				return err
			}, core.Wait(0), core.Name("order"))
			if err != nil {
				t.Error(err)
			}
		})
		got := testing.AllocsPerRun(200, intercept(grpcmw.Lock(locks, "order", grpcmw.Field("id"))))
		if t.Logf("%v, by hand %v", got, byHand); got > byHand+6 {
			t.Errorf("%v allocations, by hand %v", got, byHand)
		}
	})

	t.Run("replay by rule", func(t *testing.T) {
		replay := intercept(grpcmw.Idempotent(runs, grpcmw.AnyCaller()))
		replay() // the first run
		call := once.Call{Name: "byhand", Scope: "any", Key: "k", Fingerprint: make([]byte, 32)}
		do := func() {
			if _, err := runs.Do(ctx, call, func(context.Context) (once.Answer, error) { return once.Answer{Value: make([]byte, 60)}, nil }); err != nil {
				t.Error(err)
			}
		}
		do()
		byHand, got := testing.AllocsPerRun(200, do), testing.AllocsPerRun(200, replay)
		if t.Logf("%v, by hand %v", got, byHand); got > byHand+30 {
			t.Errorf("%v allocations, by hand %v", got, byHand)
		}
	})

	t.Run("first run", func(t *testing.T) {
		i := 0
		next := func(context.Context, string, any) (string, error) { i++; return strconv.Itoa(i), nil }
		byHand := testing.AllocsPerRun(200, func() {
			k, _ := next(ctx, "", nil)
			call := once.Call{Name: "byhand2", Scope: "any", Key: k, Fingerprint: make([]byte, 32)}
			if _, err := runs.Do(ctx, call, func(context.Context) (once.Answer, error) { return once.Answer{Value: make([]byte, 60)}, nil }); err != nil {
				t.Error(err)
			}
		})
		got := testing.AllocsPerRun(200, intercept(grpcmw.Idempotent(runs, grpcmw.AnyCaller(), grpcmw.Key(next))))
		if t.Logf("%v, by hand %v", got, byHand); got > byHand+30 {
			t.Errorf("%v allocations, by hand %v", got, byHand)
		}
	})

	t.Run("deeply packed messages", func(t *testing.T) {
		var inner []byte
		for range 2000 {
			data, err := proto.Marshal(&Order{Extra: &anypb.Any{TypeUrl: "/lockkit.grpcmw.test.Order", Value: inner}})
			if err != nil {
				t.Fatal(err)
			}
			inner = data
		}
		o := new(Order)
		if err := proto.Unmarshal(inner, o); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(1, func() { grpcmw.FingerprintOf("/a.B/C", o) }); n > 500 {
			t.Errorf("%v allocations for a request of %d bytes", n, len(inner))
		}
	})

	t.Run("method without rules", func(t *testing.T) {
		i, other := grpcmw.UnaryServerInterceptor(nil), func(context.Context, any) (any, error) { return nil, nil }
		if n := testing.AllocsPerRun(200, func() { _, _ = i(ctx, req, info, other) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}
