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

func TestClientStreams(t *testing.T) {
	t.Parallel()

	// echo responds to each message with the key of its lease.
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

	t.Run("lock of the first message", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.OnChat = echo(s)
		s.open(on(Orders_Chat_FullMethodName, s.Lock()))
		both, err := s.Client.Chat(t.Context())
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

	t.Run("client stream gets every message", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.OnUpload = func(in grpc.ClientStreamingServer[Order, Receipt]) error {
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
		s.open(on(Orders_Upload_FullMethodName, s.Lock()))
		out, err := s.Client.Upload(t.Context())
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

	t.Run("key in the metadata", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.OnChat = func(both grpc.BidiStreamingServer[Order, Receipt]) error {
			lease, _ := core.LeaseFromContext(both.Context())
			if err := both.Send(&Receipt{Text: lease.Key()}); err != nil {
				return err
			}
			_, err := both.Recv()
			return err
		}
		s.open(on(Orders_Chat_FullMethodName, grpcmw.Lock(s.Locker, "room", grpcmw.Metadata("room"))))
		both, err := s.Client.Chat(metadata.AppendToOutgoingContext(t.Context(), "room", "9"))
		if err != nil {
			t.Fatal(err)
		}
		if r, err := both.Recv(); err != nil || r.GetText() != "room:9" || s.isFree("room:9") {
			t.Errorf("got %v, %v, or the key is free", r, err)
		}
	})

	t.Run("KeyFunc called again", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.OnChat = echo(s)
		custom := func(_ context.Context, _ string, req any) (string, error) {
			o, _ := req.(*Order)
			return o.GetId(), nil
		}
		s.open(on(Orders_Chat_FullMethodName,
			grpcmw.Lock(s.Locker, "outer", grpcmw.Join(grpcmw.Metadata("room"), custom)), grpcmw.Lock(s.Locker, "own", custom)))
		both, err := s.Client.Chat(metadata.AppendToOutgoingContext(t.Context(), "room", "9"))
		if err != nil {
			t.Fatal(err)
		}
		if err := both.Send(big("5")); err != nil {
			t.Fatal(err)
		}
		if r, err := both.Recv(); err != nil || r.GetText() != "own:5" || s.isFree("outer:9:5") {
			t.Errorf("got %v, %v, or the key is free", r, err)
		}
	})

	t.Run("stream without a message", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.OnUpload = func(grpc.ClientStreamingServer[Order, Receipt]) error { t.Error("the handler ran"); return nil }
		s.open(on(Orders_Upload_FullMethodName, s.Lock()))
		out, err := s.Client.Upload(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = out.CloseAndRecv()
		refusal(t, err, codes.InvalidArgument, grpcmw.ReasonKeyInvalid)
	})

	t.Run("clients leave", func(t *testing.T) { // hazard 47
		t.Parallel()
		s := newShop(t)
		s.OnChat = echo(s)
		s.open(on(Orders_Chat_FullMethodName, s.Lock()))
		ctx, leave := context.WithCancel(t.Context())
		if _, err := s.Client.Chat(ctx); err != nil { // the client sends no message
			t.Fatal(err)
		}
		for i := range 20 {
			both, err := s.Client.Chat(ctx)
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

	t.Run("panic frees the key", func(t *testing.T) { // hazard 50
		t.Parallel()
		s := newShop(t)
		s.OnChat = func(grpc.BidiStreamingServer[Order, Receipt]) error { panic("card reader on fire") }
		s.open(on(Orders_Chat_FullMethodName, s.Lock()), grpc.ChainStreamInterceptor(
			func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
				defer func() { err = status.Errorf(codes.Internal, "%v", recover()) }()
				return next(srv, ss)
			}))
		both, err := s.Client.Chat(t.Context())
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

	t.Run("lost lease without further message", func(t *testing.T) {
		t.Parallel()
		s, gone := newShop(t), core.ErrLost
		s.OnChat = func(both grpc.BidiStreamingServer[Order, Receipt]) error {
			if _, err := both.Recv(); err != nil {
				t.Error(err)
			}
			s.Store.ExtendFails.Store(&gone)
			<-both.Context().Done()
			if cause := context.Cause(both.Context()); !errors.Is(cause, core.ErrLost) {
				t.Errorf("the cause is %v, want ErrLost", cause)
			}
			_, err := both.Recv() // there is no next message
			if status.Code(err) != codes.Aborted || !errors.Is(err, core.ErrLost) {
				t.Errorf("the next message: %v", err)
			}
			return both.Send(&Receipt{Text: "stands"})
		}
		s.open(on(Orders_Chat_FullMethodName, s.Lock(grpcmw.Acquire(core.TTL(2*time.Second)))))
		both, err := s.Client.Chat(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := both.Send(big("5")); err != nil {
			t.Fatal(err)
		}
		if r, err := both.Recv(); err != nil || r.GetText() != "stands" {
			t.Errorf("got %v, %v", r, err)
		}
		if _, err := both.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("got %v", err)
		}
	})

	t.Run("message after the loss", func(t *testing.T) {
		t.Parallel()
		s, gone, lost := newShop(t), core.ErrLost, make(chan struct{})
		s.OnChat = func(both grpc.BidiStreamingServer[Order, Receipt]) error {
			context.AfterFunc(both.Context(), func() { close(lost) })
			if _, err := both.Recv(); err != nil {
				t.Error(err)
			}
			s.Store.ExtendFails.Store(&gone)
			o, err := both.Recv() // this Recv begins before the loss
			if status.Code(err) != codes.Aborted || !errors.Is(err, core.ErrLost) {
				t.Errorf("got %v, %v", o, err)
			}
			return err
		}
		s.open(on(Orders_Chat_FullMethodName, s.Lock(grpcmw.Acquire(core.TTL(2*time.Second)))))
		both, err := s.Client.Chat(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := both.Send(big("5")); err != nil {
			t.Fatal(err)
		}
		within(t, "the lease is lost", lost)
		// On a slow machine the second Recv begins after the loss, and the stream ends.
		if err := both.Send(big("6")); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if _, err := both.Recv(); status.Code(err) != codes.Aborted {
			t.Errorf("got %v", err)
		}
	})

	t.Run("Idempotent on a stream", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.OnChat = func(grpc.BidiStreamingServer[Order, Receipt]) error { t.Error("the handler ran"); return nil }
		rules := on(Orders_Chat_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller()))
		s.open(nil, grpcmw.ServerOptions(rules)...)
		both, err := s.Client.Chat(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = both.Recv()
		refusal(t, err, codes.Internal, grpcmw.ReasonFailed)
	})
}
