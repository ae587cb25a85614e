package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/grpcmw"
)

// big is an order of which every part has to reach the handler unchanged.
func big(id string) *Order {
	return &Order{Id: id, I64: 9007199254740993, Tags: []string{"a", "b"}, Amounts: map[string]int64{"x": 1}, Item: &Item{Sku: "s"}}
}

func TestServerStream(t *testing.T) {
	t.Parallel()

	t.Run("lock held while the stream lives", func(t *testing.T) {
		t.Parallel()
		s, next := newShop(t), make(chan struct{})
		s.OnWatch = func(o *Order, out grpc.ServerStreamingServer[Receipt]) error {
			if !proto.Equal(o, big("5")) {
				t.Errorf("the handler got %v", o)
			}
			if lease, found := core.LeaseFromContext(out.Context()); !found || lease.Key() != "order:5" {
				t.Error("no lease in the stream's context")
			}
			for n := range 3 {
				if err := out.Send(&Receipt{Text: fmt.Sprint(n)}); err != nil {
					return err
				}
				within(t, "the client wants more", next)
			}
			return nil
		}
		s.open(on(Orders_Watch_FullMethodName, s.Lock()))
		in, err := s.Client.Watch(t.Context(), big("5"))
		if err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			r, err := in.Recv()
			if err != nil || r.GetText() != fmt.Sprint(n) {
				t.Fatalf("got %v, %v; want %d", r, err, n)
			}
			if s.isFree("order:5") {
				t.Error("the key is free during the stream")
			}
			next <- struct{}{}
		}
		if _, err := in.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("got %v", err)
		}
		if !s.isFree("order:5") { // already when the client receives the end of the stream
			t.Error("the key is not free")
		}
	})

	t.Run("busy lock is ABORTED", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.OnWatch = func(*Order, grpc.ServerStreamingServer[Receipt]) error {
			t.Error("the handler ran")
			return nil
		}
		s.open(on(Orders_Watch_FullMethodName, s.Lock()))
		s.Hold("order:5")
		in, err := s.Client.Watch(t.Context(), big("5"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = in.Recv()
		refusal(t, err, codes.Aborted, grpcmw.ReasonBusy)
		if h, _ := in.Header(); len(h) != 0 || len(in.Trailer().Get(pushback)) != 1 {
			t.Errorf("got headers %v, trailers %v", h, in.Trailer())
		}
	})

	t.Run("KeyFunc gets the request", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.OnWatch = func(_ *Order, out grpc.ServerStreamingServer[Receipt]) error {
			lease, _ := core.LeaseFromContext(out.Context())
			return out.Send(&Receipt{Text: lease.Key()})
		}
		custom := func(_ context.Context, _ string, req any) (string, error) { return req.(*Order).GetId(), nil }
		s.open(on(Orders_Watch_FullMethodName, grpcmw.Lock(s.Locker, "own", custom)))
		in, err := s.Client.Watch(t.Context(), big("5"))
		if err != nil {
			t.Fatal(err)
		}
		if r, err := in.Recv(); err != nil || r.GetText() != "own:5" {
			t.Errorf("got %v, %v", r, err)
		}
	})

	t.Run("client leaves", func(t *testing.T) {
		t.Parallel()
		s, ended := newShop(t), make(chan error, 1)
		s.OnWatch = func(_ *Order, out grpc.ServerStreamingServer[Receipt]) error {
			if err := out.Send(&Receipt{}); err != nil {
				t.Error(err)
			}
			<-out.Context().Done()
			ended <- context.Cause(out.Context())
			return nil
		}
		s.open(on(Orders_Watch_FullMethodName, s.Lock()))
		ctx, leave := context.WithCancel(t.Context())
		in, err := s.Client.Watch(ctx, big("5"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Recv(); err != nil {
			t.Fatal(err)
		}
		leave()
		if err := within(t, "the handler's context is done", ended); !errors.Is(err, context.Canceled) {
			t.Errorf("the cause is %v", err)
		}
		eventually(t, "the key is free", func() bool { return s.isFree("order:5") })
	})
}

// endless is a stream whose messages arrive even after its context is done.
type endless struct {
	grpc.ServerStream
	ctx context.Context
}

func (s endless) Context() context.Context { return s.ctx }
func (s endless) RecvMsg(any) error        { return nil }

// TestStreamServerInterceptor_LostAfterItsEnd checks that a handler gets no message after
// its lock is lost, even if the stream's context was done before.
func TestStreamServerInterceptor_LostAfterItsEnd(t *testing.T) {
	t.Parallel()
	db := memstore.New()
	locks, err := core.New(db)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	lock := func(name string) grpcmw.Rule {
		five := func(context.Context, string, any) (string, error) { return "5", nil }
		return grpcmw.Lock(locks, name, five, grpcmw.Acquire(core.TTL(300*time.Millisecond)))
	}
	intercept := grpcmw.StreamServerInterceptor(on(Orders_Watch_FullMethodName, lock("order"), lock("customer")))
	err = intercept(nil, endless{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: Orders_Watch_FullMethodName, IsServerStream: true}, func(_ any, ss grpc.ServerStream) error {
		lease, ok := core.LeaseOf(ss.Context(), "order:5")
		if !ok {
			t.Fatal("the handler has no lease")
		}
		cancel()
		if err := db.Revoke(t.Context(), lease.Key(), lease.ID(), time.Millisecond); err != nil {
			t.Fatal(err)
		}
		eventually(t, "no message arrives", func() bool { return status.Code(ss.RecvMsg(&Order{})) == codes.Aborted })
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
