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
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/grpcmw"
)

// big is an order whose every part has to survive on its way to the handler.
func big(id string) *Order {
	return &Order{Id: id, I64: 9007199254740993, Tags: []string{"a", "b"}, Amounts: map[string]int64{"x": 1}, Item: &Item{Sku: "s"}}
}

func TestServerStream(t *testing.T) {
	t.Parallel()

	t.Run("the lock of the request is held while the stream lives", func(t *testing.T) {
		t.Parallel()
		s, next := newShop(t), make(chan struct{})
		s.watch = func(o *Order, out grpc.ServerStreamingServer[Receipt]) error {
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
		s.open(on(Orders_Watch_FullMethodName, s.lock()))
		in, err := s.client.Watch(t.Context(), big("5"))
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
		if !s.isFree("order:5") { // when the client has the end
			t.Error("the key is not free")
		}
	})

	t.Run("a busy lock is ABORTED without a header", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.watch = func(*Order, grpc.ServerStreamingServer[Receipt]) error {
			t.Error("the handler ran")
			return nil
		}
		s.open(on(Orders_Watch_FullMethodName, s.lock()))
		s.hold("order:5")
		in, err := s.client.Watch(t.Context(), big("5"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = in.Recv()
		refusal(t, err, codes.Aborted, grpcmw.ReasonBusy)
		if h, _ := in.Header(); len(h) != 0 || len(in.Trailer().Get(pushback)) != 1 {
			t.Errorf("got headers %v, trailers %v", h, in.Trailer())
		}
	})

	t.Run("a KeyFunc of the user's gets the request", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.watch = func(_ *Order, out grpc.ServerStreamingServer[Receipt]) error {
			lease, _ := core.LeaseFromContext(out.Context())
			return out.Send(&Receipt{Text: lease.Key()})
		}
		custom := func(_ context.Context, _ string, req any) (string, error) { return req.(*Order).GetId(), nil }
		s.open(on(Orders_Watch_FullMethodName, grpcmw.Lock(s.locker, "own", custom)))
		in, err := s.client.Watch(t.Context(), big("5"))
		if err != nil {
			t.Fatal(err)
		}
		if r, err := in.Recv(); err != nil || r.GetText() != "own:5" {
			t.Errorf("got %v, %v", r, err)
		}
	})

	t.Run("a client that goes away ends the handler's context and frees the key", func(t *testing.T) {
		t.Parallel()
		s, ended := newShop(t), make(chan error, 1)
		s.watch = func(_ *Order, out grpc.ServerStreamingServer[Receipt]) error {
			if err := out.Send(&Receipt{}); err != nil {
				t.Error(err)
			}
			<-out.Context().Done()
			ended <- context.Cause(out.Context())
			return nil
		}
		s.open(on(Orders_Watch_FullMethodName, s.lock()))
		ctx, leave := context.WithCancel(t.Context())
		in, err := s.client.Watch(ctx, big("5"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Recv(); err != nil {
			t.Fatal(err)
		}
		leave()
		if err := within(t, "the handler's context has ended", ended); !errors.Is(err, context.Canceled) {
			t.Errorf("the cause is %v", err)
		}
		eventually(t, "the key is free", func() bool { return s.isFree("order:5") })
	})
}

func TestClientStreams(t *testing.T) {
	t.Parallel()

	// echo answers each message, and tells of its lease.
	echo := func(s *shop) func(grpc.BidiStreamingServer[Order, Receipt]) error {
		return func(both grpc.BidiStreamingServer[Order, Receipt]) error {
			lease, _ := core.LeaseFromContext(both.Context()) // before the first message
			for {
				o, err := both.Recv()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return err
				}
				if err := both.Send(&Receipt{Id: o.GetId(), Text: lease.Key()}); err != nil {
					return err
				}
			}
		}
	}

	t.Run("the lock of the first message is held from before the handler until the end", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.chat = echo(s)
		s.open(on(Orders_Chat_FullMethodName, s.lock()))
		both, err := s.client.Chat(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"5", "6", "7"} {
			if err := both.Send(big(id)); err != nil {
				t.Fatal(err)
			}
			r, err := both.Recv()
			if err != nil || r.GetId() != id || r.GetText() != "order:5" {
				t.Errorf("got %v, %v", r, err)
			}
			if s.isFree("order:5") || !s.isFree("order:6") {
				t.Error("the first message's key is free, or another one is not")
			}
		}
		if err := both.CloseSend(); err != nil {
			t.Error(err)
		}
		if _, err := both.Recv(); !errors.Is(err, io.EOF) || !s.isFree("order:5") {
			t.Errorf("got %v, or the key is not free", err)
		}
	})

	t.Run("a client stream's handler receives every message", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.upload = func(in grpc.ClientStreamingServer[Order, Receipt]) error {
			lease, _ := core.LeaseFromContext(in.Context())
			text := lease.Key()
			for {
				o, err := in.Recv()
				if errors.Is(err, io.EOF) {
					return in.SendAndClose(&Receipt{Text: text})
				}
				if err != nil || !proto.Equal(o, big(o.GetId())) {
					t.Errorf("got %v, %v", o, err)
					return err
				}
				text += " " + o.GetId()
			}
		}
		s.open(on(Orders_Upload_FullMethodName, s.lock()))
		out, err := s.client.Upload(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"5", "6", "7"} {
			if err := out.Send(big(id)); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := out.CloseAndRecv(); err != nil || r.GetText() != "order:5 5 6 7" {
			t.Errorf("got %v, %v", r, err)
		}
	})

	t.Run("a key in the metadata needs no message: the server may speak first", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.chat = func(both grpc.BidiStreamingServer[Order, Receipt]) error {
			lease, _ := core.LeaseFromContext(both.Context())
			if err := both.Send(&Receipt{Text: lease.Key()}); err != nil {
				return err
			}
			_, err := both.Recv()
			return err
		}
		s.open(on(Orders_Chat_FullMethodName, grpcmw.Lock(s.locker, "room", grpcmw.Metadata("room"))))
		both, err := s.client.Chat(metadata.AppendToOutgoingContext(t.Context(), "room", "9"))
		if err != nil {
			t.Fatal(err)
		}
		if r, err := both.Recv(); err != nil || r.GetText() != "room:9" || s.isFree("room:9") {
			t.Errorf("got %v, %v, or the key is free", r, err)
		}
	})

	t.Run("a KeyFunc that answers nothing is asked again with the first message, also within Join", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.chat = echo(s)
		custom := func(_ context.Context, _ string, req any) (string, error) {
			o, _ := req.(*Order)
			return o.GetId(), nil
		}
		s.open(on(Orders_Chat_FullMethodName,
			grpcmw.Lock(s.locker, "outer", custom), grpcmw.Lock(s.locker, "own", grpcmw.Join(grpcmw.Metadata("room"), custom))))
		both, err := s.client.Chat(metadata.AppendToOutgoingContext(t.Context(), "room", "9"))
		if err != nil {
			t.Fatal(err)
		}
		if err := both.Send(big("5")); err != nil {
			t.Fatal(err)
		}
		if r, err := both.Recv(); err != nil || r.GetText() != "own:9:5" || s.isFree("outer:5") {
			t.Errorf("got %v, %v, or the key is free", r, err)
		}
	})

	t.Run("a stream without a message has no key", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.upload = func(grpc.ClientStreamingServer[Order, Receipt]) error { t.Error("the handler ran"); return nil }
		s.open(on(Orders_Upload_FullMethodName, s.lock()))
		out, err := s.client.Upload(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = out.CloseAndRecv()
		refusal(t, err, codes.InvalidArgument, grpcmw.ReasonKeyInvalid)
	})

	t.Run("clients that go away free the keys, while the server waits for the first message or the next", func(t *testing.T) { // hazard 47
		t.Parallel()
		s := newShop(t)
		s.chat = echo(s)
		s.open(on(Orders_Chat_FullMethodName, s.lock()))
		ctx, leave := context.WithCancel(t.Context())
		if _, err := s.client.Chat(ctx); err != nil { // and never says a word
			t.Fatal(err)
		}
		for i := range 20 {
			both, err := s.client.Chat(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := both.Send(big(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
			if _, err := both.Recv(); err != nil || s.isFree(core.Key("order", fmt.Sprint(i))) {
				t.Errorf("got %v, or the key is free", err)
			}
		}
		leave()
		for i := range 20 {
			eventually(t, "the key is free", func() bool { return s.isFree(core.Key("order", fmt.Sprint(i))) })
		}
	})

	t.Run("a panic frees the key", func(t *testing.T) { // hazard 50
		t.Parallel()
		s := newShop(t)
		s.chat = func(grpc.BidiStreamingServer[Order, Receipt]) error { panic("card reader on fire") }
		s.open(on(Orders_Chat_FullMethodName, s.lock()), grpc.ChainStreamInterceptor(
			func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
				defer func() { err = status.Errorf(codes.Internal, "%v", recover()) }()
				return next(srv, ss)
			}))
		both, err := s.client.Chat(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := both.Send(big("5")); err != nil {
			t.Fatal(err)
		}
		if _, err := both.Recv(); status.Convert(err).Message() != "card reader on fire" || !s.isFree("order:5") {
			t.Errorf("got %v, or the key is not free", err)
		}
	})

	t.Run("after the lease was lost no further message is worked on, and what the handler says stands", func(t *testing.T) {
		t.Parallel()
		s, gone := newShop(t), core.ErrLost
		s.store.extend.Store(&gone)
		s.chat = func(both grpc.BidiStreamingServer[Order, Receipt]) error {
			if _, err := both.Recv(); err != nil {
				t.Error(err)
			}
			<-both.Context().Done()
			if cause := context.Cause(both.Context()); !errors.Is(cause, core.ErrLost) {
				t.Errorf("the cause is %v, want ErrLost", cause)
			}
			_, err := both.Recv()
			if status.Code(err) != codes.Aborted || !errors.Is(err, core.ErrLost) {
				t.Errorf("the next message: %v", err)
			}
			return both.Send(&Receipt{Text: "stands"})
		}
		s.open(on(Orders_Chat_FullMethodName, s.lock(grpcmw.Acquire(core.TTL(300*time.Millisecond)))))
		both, err := s.client.Chat(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := both.Send(big("5")); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := both.Recv(); err != nil || r.GetText() != "stands" {
			t.Errorf("got %v, %v", r, err)
		}
		if _, err := both.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("got %v", err)
		}
	})

	t.Run("Idempotent answers a stream with INTERNAL, and nothing runs", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.chat = func(grpc.BidiStreamingServer[Order, Receipt]) error { t.Error("the handler ran"); return nil }
		rules := on(Orders_Chat_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller()))
		s.open(nil, interceptors(rules)...)
		both, err := s.client.Chat(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = both.Recv()
		refusal(t, err, codes.Internal, grpcmw.ReasonFailed)
	})
}
