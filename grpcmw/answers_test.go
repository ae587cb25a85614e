package grpcmw_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"

	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/internal/answers"
	"github.com/lockkit/lockkit/grpcmw/internal/orders"
)

func TestAnswers(t *testing.T)         { t.Parallel(); answers.Refusals(t, onGRPC) }
func TestIdempotent(t *testing.T)      { t.Parallel(); answers.Repeated(t, onGRPC) }
func TestIdempotentKeeps(t *testing.T) { t.Parallel(); answers.Kept(t, onGRPC) }
func TestKeepIf(t *testing.T)          { t.Parallel(); answers.KeepIf(t, onGRPC) }
func TestKeepMetadata(t *testing.T)    { t.Parallel(); answers.KeepMetadata(t, onGRPC) }
func TestWithdraw(t *testing.T)        { t.Parallel(); answers.Withdraw(t, onGRPC) }
func TestNotFinal(t *testing.T)        { t.Parallel(); answers.NotFinal(t, onGRPC) }
func TestCommit(t *testing.T)          { t.Parallel(); answers.Commit(t, onGRPC) }
func TestCommit_Refused(t *testing.T)  { t.Parallel(); answers.CommitRefused(t, onGRPC) }

func TestCommit_InsideAnother(t *testing.T) {
	t.Parallel()
	answers.CommitInsideAnother(t, onGRPC)
}

// onGRPC serves h with grpc-go, for the suite of package answers.
func onGRPC(t *testing.T, h orders.OrdersServer, rules grpcmw.Rules, outer ...answers.Outer) orders.OrdersClient {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var opts []grpc.ServerOption
	for _, o := range outer {
		opts = append(opts, grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			return o(ctx, func(ctx context.Context) (any, error) { return next(ctx, req) })
		}))
	}
	server := grpc.NewServer(append(opts, grpcmw.ServerOptions(rules)...)...)
	orders.RegisterOrdersServer(server, h)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return dial(t, listener.Addr().String())
}
