package grpcmw_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/internal/answers"
)

func TestMain(m *testing.M) {
	logging.Disable() // Redis clients log every server that a test has stopped
	if code := m.Run(); code != 0 {
		os.Exit(code)
	}
	if err := goleak.Find(); err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

// Short names for helpers of package answers.
const (
	key      = answers.IdempotencyKey
	pushback = answers.Pushback
	soon     = answers.Soon
)

type (
	handlers = answers.Handlers
	reply    = answers.Reply
	reasons  = answers.Reasons
	stub     = answers.Stub
	unary    = answers.Unary
)

var (
	on         = answers.On
	ask        = answers.Ask
	refusal    = answers.RefusalOf
	ok         = answers.OK
	counting   = answers.Counting
	mustNotRun = answers.MustNotRun
	eventually = answers.Eventually
)

func within[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	return answers.Within(t, what, ch)
}

// watched is the option of a server that collects the errors of an outer interceptor.
func watched(r *reasons) grpc.ServerOption {
	return grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		return r.Watch(ctx, func(ctx context.Context) (any, error) { return next(ctx, req) })
	})
}

// shop is a shop that grpc-go serves on a real listener.
type shop struct {
	*answers.Shop
	addr   string
	listen func(net.Listener) net.Listener
}

func newShop(t *testing.T, opts ...core.Option) *shop {
	t.Helper()
	return &shop{Shop: answers.NewShop(t, nil, opts...)}
}

func newShopOn(t *testing.T, store core.Store, opts ...core.Option) *shop {
	t.Helper()
	return &shop{Shop: answers.NewShopOn(t, store, opts...)}
}

// open begins to serve with rules, inside the other interceptors of opts.
func (s *shop) open(rules grpcmw.Rules, opts ...grpc.ServerOption) *shop {
	s.T.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.T.Fatal(err)
	}
	s.addr = listener.Addr().String()
	if s.listen != nil {
		listener = s.listen(listener)
	}
	server := grpc.NewServer(append(opts, grpcmw.ServerOptions(rules)...)...)
	RegisterOrdersServer(server, &s.Handlers)
	if err := grpcmw.Check(server, rules); err != nil {
		s.T.Error(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	s.T.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			s.T.Error(err)
		}
	})
	s.Client = s.dial()
	return s
}

func (s *shop) dial(opts ...grpc.DialOption) OrdersClient {
	s.T.Helper()
	return dial(s.T, s.addr, opts...)
}

func dial(t *testing.T, addr string, opts ...grpc.DialOption) OrdersClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return NewOrdersClient(conn)
}

func (s *shop) isFree(key string) bool {
	s.T.Helper()
	lease, err := s.Locker.TryAcquire(context.Background(), key)
	if errors.Is(err, core.ErrBusy) {
		return false
	}
	if err != nil {
		s.T.Error(err)
		return false
	}
	if err := lease.Release(context.Background()); err != nil {
		s.T.Error(err)
	}
	return true
}
