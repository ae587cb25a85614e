package connectmw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/connectmw"
	"github.com/lockkit/lockkit/grpcmw/internal/orders"
)

const (
	watch  = orders.Orders_Watch_FullMethodName
	upload = orders.Orders_Upload_FullMethodName
)

func serveStream(t *testing.T, method string, rules grpcmw.Rules, make func(...connect.HandlerOption) *connect.Handler) (url string) {
	t.Helper()
	return start(t, make(connect.WithInterceptors(connectmw.Interceptor(rules)))) + method
}

func reasonOf(err error) string {
	var own *connect.Error
	if !errors.As(err, &own) {
		return ""
	}
	for _, d := range own.Details() {
		if m, err := d.Value(); err == nil {
			if info, ok := m.(*errdetails.ErrorInfo); ok {
				return info.GetReason()
			}
		}
	}
	return ""
}

// TestServerStream checks that a stream holds its lock until its handler has returned.
func TestServerStream(t *testing.T) {
	t.Parallel()
	for name, opts := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locks := newLocker(t)
			rules := grpcmw.Rules{watch: {grpcmw.Lock(locks, "order", grpcmw.Field("id"))}}
			finish := make(chan struct{})
			url := serveStream(t, watch, rules, func(o ...connect.HandlerOption) *connect.Handler {
				return connect.NewServerStreamHandler(watch, func(ctx context.Context, r *request, s *connect.ServerStream[orders.Receipt]) error {
					lease, _ := core.LeaseFromContext(ctx)
					if err := s.Send(&orders.Receipt{Id: r.Msg.GetId(), Text: lease.Key()}); err != nil {
						return err
					}
					<-finish
					return connect.NewError(connect.CodeDataLoss, errors.New("at its end"))
				}, o...)
			})
			c := connect.NewClient[orders.Order, orders.Receipt](newHTTP(t), url, opts...)
			first, err := c.CallServerStream(t.Context(), connect.NewRequest(&orders.Order{Id: "5"}))
			if err != nil || !first.Receive() || first.Msg().GetText() != core.Key("order", "5") || first.Msg().GetId() != "5" {
				t.Fatalf("got %v, %v, want the key", err, first.Err())
			}
			second, err := c.CallServerStream(t.Context(), connect.NewRequest(&orders.Order{Id: "5"}))
			if err != nil {
				t.Fatal(err)
			}
			if second.Receive() || connect.CodeOf(second.Err()) != connect.CodeAborted || reasonOf(second.Err()) != grpcmw.ReasonBusy {
				t.Errorf("got %v, want busy", second.Err())
			}
			_ = second.Close()
			close(finish)
			if first.Receive() || connect.CodeOf(first.Err()) != connect.CodeDataLoss {
				t.Errorf("got %v, want the handler's error", first.Err())
			}
			_ = first.Close()
			if lease, err := locks.TryAcquire(t.Context(), core.Key("order", "5")); err != nil {
				t.Errorf("got %v, want a free lock", err)
			} else {
				_ = lease.Release(t.Context())
			}
		})
	}
}

// TestClientStream checks a key in the first message, which the handler must also
// receive.
func TestClientStream(t *testing.T) {
	t.Parallel()
	rules := grpcmw.Rules{upload: {grpcmw.Lock(newLocker(t), "order", grpcmw.Field("id"))}}
	url := serveStream(t, upload, rules, func(o ...connect.HandlerOption) *connect.Handler {
		return connect.NewClientStreamHandler(upload, func(ctx context.Context, s *connect.ClientStream[orders.Order]) (*response, error) {
			lease, _ := core.LeaseFromContext(ctx)
			text := lease.Key()
			for s.Receive() {
				text += " " + s.Msg().GetId()
			}
			return connect.NewResponse(&orders.Receipt{Text: text}), s.Err()
		}, o...)
	})
	for name, opts := range clients {
		stream := connect.NewClient[orders.Order, orders.Receipt](newHTTP(t), url, opts...).CallClientStream(t.Context())
		for _, id := range []string{"5", "6"} {
			if err := stream.Send(&orders.Order{Id: id}); err != nil {
				t.Fatal(err)
			}
		}
		r, err := stream.CloseAndReceive()
		if want := core.Key("order", "5") + " 5 6"; err != nil || r.Msg.GetText() != want {
			t.Errorf("%s: got %v, %v, want %q", name, r, err, want)
		}
		none := connect.NewClient[orders.Order, orders.Receipt](newHTTP(t), url, opts...).CallClientStream(t.Context())
		if _, err := none.CloseAndReceive(); connect.CodeOf(err) != connect.CodeInvalidArgument || reasonOf(err) != grpcmw.ReasonKeyInvalid {
			t.Errorf("%s: got %v without a message, want %v", name, err, connect.CodeInvalidArgument)
		}
	}
}

// TestStream_Idempotent checks that each call of a stream with an Idempotent is
// refused. A stream has no response to store.
func TestStream_Idempotent(t *testing.T) {
	t.Parallel()
	rules := idempotent(t)
	rules[watch] = rules[pay]
	url := serveStream(t, watch, rules, func(o ...connect.HandlerOption) *connect.Handler {
		return connect.NewServerStreamHandler(watch, func(context.Context, *request, *connect.ServerStream[orders.Receipt]) error {
			t.Error("the handler ran")
			return nil
		}, o...)
	})
	stream, err := connect.NewClient[orders.Order, orders.Receipt](newHTTP(t), url).CallServerStream(t.Context(), connect.NewRequest(&orders.Order{}))
	if err != nil {
		t.Fatal(err)
	}
	if stream.Receive() || connect.CodeOf(stream.Err()) != connect.CodeInternal || reasonOf(stream.Err()) != grpcmw.ReasonFailed {
		t.Errorf("got %v, want %v", stream.Err(), connect.CodeInternal)
	}
	_ = stream.Close()
}

// lost is a store that reports each hold as lost at its first extension.
type lost struct{ *memstore.Store }

func (s lost) Extend(_ context.Context, claims []store.Claim) []store.Extension {
	answers := make([]store.Extension, len(claims))
	for i := range answers {
		answers[i].Err = store.ErrLost
	}
	return answers
}

type quiet struct{}

func (quiet) Observe(context.Context, core.Event) {}

// TestStream_Lost checks that a handler receives no message after the loss of its lock.
func TestStream_Lost(t *testing.T) {
	t.Parallel()
	locks, err := core.New(lost{memstore.New()}, core.WithObserver(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	rules := grpcmw.Rules{upload: {grpcmw.Lock(locks, "order", grpcmw.Field("id"), grpcmw.Acquire(core.TTL(300*time.Millisecond)))}}
	url := serveStream(t, upload, rules, func(o ...connect.HandlerOption) *connect.Handler {
		return connect.NewClientStreamHandler(upload, func(ctx context.Context, s *connect.ClientStream[orders.Order]) (*response, error) {
			<-ctx.Done()
			for s.Receive() {
				t.Error("a message was received")
			}
			if errors.Is(s.Err(), io.EOF) || !errors.Is(s.Err(), core.ErrLost) {
				t.Errorf("got %v, want %v", s.Err(), core.ErrLost)
			}
			return nil, s.Err()
		}, o...)
	})
	stream := connect.NewClient[orders.Order, orders.Receipt](newHTTP(t), url, connect.WithGRPC()).CallClientStream(t.Context())
	if err := stream.Send(&orders.Order{Id: "5"}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.CloseAndReceive(); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("got %v, want %v", fmt.Sprint(err), connect.CodeAborted)
	}
}
