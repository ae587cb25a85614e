package adapters_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/grpcmw"
)

// grpcFront is a gRPC service with its own listener. The trial calls one of its methods.
type grpcFront struct {
	*service
	method string
	rules  grpcmw.Rules
	server *grpc.Server
	conn   *grpc.ClientConn
	addr   string
	served chan struct{}
}

func serveUnary(v *service) front  { return serveGRPC(v, payMethod) }
func serveStream(v *service) front { return serveGRPC(v, chatMethod) }

func serveGRPC(v *service, method string) front {
	f := &grpcFront{service: v, method: method, served: make(chan struct{})}
	var opts []grpcmw.Option
	if v.rushes() {
		opts = append(opts, grpcmw.Acquire(core.Wait(patience)))
	}
	rules := []grpcmw.Rule{grpcmw.Lock(v.locker, "order", grpcmw.Field("value"), opts...)}
	if v.idempotent {
		rules = append([]grpcmw.Rule{grpcmw.Idempotent(v.runs, grpcmw.AnyCaller())}, rules...)
	}
	f.rules = grpcmw.Rules{method: rules}
	// In half of the trials the recovery from panics is inside the lock, and in the
	// other half it is outside.
	unary := []grpc.UnaryServerInterceptor{recoverUnary, grpcmw.UnaryServerInterceptor(f.rules)}
	streams := []grpc.StreamServerInterceptor{recoverStream, grpcmw.StreamServerInterceptor(f.rules)}
	if v.trial%4 > 1 {
		unary[0], unary[1] = unary[1], unary[0]
		streams[0], streams[1] = streams[1], streams[0]
	}
	f.server = grpc.NewServer(grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(streams...))
	f.server.RegisterService(&payments, f)
	if err := grpcmw.Check(f.server, f.rules); (err != nil) != (v.idempotent && method == chatMethod) {
		v.t.Errorf("check: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		v.t.Fatal(err)
	}
	f.addr = listener.Addr().String()
	go func() {
		defer close(f.served)
		_ = f.server.Serve(listener)
	}()
	if f.conn, err = grpc.NewClient(f.addr, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		v.t.Fatal(err)
	}
	return f
}

// check reports whether grpcmw.Check refuses the rules.
func (f *grpcFront) check() bool { return errors.Is(grpcmw.Check(f.server, f.rules), core.ErrInvalid) }

func (f *grpcFront) pay(ctx context.Context, _ *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	text, err := f.work(ctx, f.name)
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	return wrapperspb.String(text), nil
}

func (f *grpcFront) chat(s grpc.ServerStream) error {
	if err := s.RecvMsg(new(wrapperspb.StringValue)); err != nil {
		return err
	}
	text, err := f.work(s.Context(), f.name)
	if err != nil {
		return status.FromContextError(err).Err()
	}
	if cause := context.Cause(s.Context()); errors.Is(cause, core.ErrLost) {
		if err := s.RecvMsg(new(wrapperspb.StringValue)); status.Code(err) != codes.Aborted {
			f.t.Errorf("without its lock, the stream receives %v", err)
		}
	}
	return s.SendMsg(wrapperspb.String(text))
}

func recoverUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
	defer recovered(&err)
	return next(ctx, req)
}

func recoverStream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer recovered(&err)
	return next(srv, s)
}

func recovered(err *error) {
	if recover() != nil {
		*err = status.Error(codes.Internal, "panic")
	}
}

func (f *grpcFront) call(ctx context.Context, r request) answer {
	if r.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.timeout)
		defer cancel()
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", r.key)
	var header, trailer metadata.MD
	reply, err := new(wrapperspb.StringValue), error(nil)
	if f.method == payMethod {
		err = f.conn.Invoke(ctx, payMethod, wrapperspb.String(r.order), reply, grpc.Header(&header), grpc.Trailer(&trailer))
	} else {
		header, trailer, err = f.talk(ctx, r.order, reply)
	}
	s := status.Convert(err)
	a := answer{text: reply.GetValue(), raw: fmt.Sprint(reply, s, s.Proto().GetDetails(), s.Details(), header, trailer)}
	a.outcome = f.outcome(s, header, trailer)
	return a
}

func (f *grpcFront) talk(ctx context.Context, order string, reply *wrapperspb.StringValue) (header, trailer metadata.MD, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	both, err := f.conn.NewStream(ctx, &payments.Streams[0], chatMethod)
	if err != nil {
		return nil, nil, err
	}
	if err = both.SendMsg(wrapperspb.String(order)); err == nil || errors.Is(err, io.EOF) {
		err = both.RecvMsg(reply)
	}
	if err == nil {
		if err = both.RecvMsg(new(wrapperspb.StringValue)); errors.Is(err, io.EOF) {
			err = nil
		}
	}
	header, _ = both.Header()
	return header, both.Trailer(), err
}

func (f *grpcFront) outcome(s *status.Status, header, trailer metadata.MD) outcome {
	reason, hints := "", 0
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			reason = d.GetReason()
		case *errdetails.RetryInfo:
			hints++
		}
	}
	hints += len(trailer["grpc-retry-pushback-ms"])
	again := hints == 2 && len(header) == 0 // clients retry automatically
	switch code := s.Code(); {
	case code == codes.OK && strings.Join(trailer["idempotent-replayed"], "") == "true":
		return replayed
	case code == codes.OK:
		return done
	case code == codes.Aborted && again && (reason == grpcmw.ReasonBusy || reason == grpcmw.ReasonInProgress):
		return busy
	case code == codes.Unavailable && again && reason == grpcmw.ReasonUnavailable:
		return unavailable
	case code == codes.Canceled && reason == "":
		return gone
	case code == codes.DeadlineExceeded && reason == "":
		return timeout
	case code == codes.Internal && reason == grpcmw.ReasonFailed, code == codes.InvalidArgument && f.idempotent:
		return refused
	case code == codes.Internal && s.Message() == "panic":
		return crashed
	}
	return "another answer"
}

func (f *grpcFront) redelivered(int) {}

func (f *grpcFront) stop() <-chan struct{} {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		f.server.GracefulStop()
	}()
	awaitRefusal(f.stage, f.addr)
	return stopped
}

func (f *grpcFront) close() {
	_ = f.conn.Close()
	f.server.Stop()
	<-f.served
}
