package frameworks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	kgrpc "github.com/go-kratos/kratos/v2/transport/grpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/examples/grpc/chargepb"
	"github.com/lockkit/lockkit/grpcmw"
)

// payments is a service whose Charge counts its runs and calls pay.
type payments struct {
	chargepb.UnimplementedPaymentsServer
	pay func(ctx context.Context) error
	n   atomic.Int64
}

func (p *payments) Charge(ctx context.Context, _ *chargepb.ChargeRequest) (*chargepb.Receipt, error) {
	n := p.n.Add(1)
	if err := p.pay(ctx); err != nil {
		return nil, err
	}
	return &chargepb.Receipt{Id: fmt.Sprintf("run %d", n)}, nil
}

// onKratos starts two replicas of a service on Kratos's gRPC server, and returns their
// clients.
func onKratos(t *testing.T, p *payments, opts ...kgrpc.ServerOption) [2]chargepb.PaymentsClient {
	t.Helper()
	store := memstore.New()
	var clients [2]chargepb.PaymentsClient
	for i := range clients {
		locks, err := core.New(store)
		if err != nil {
			t.Fatal(err)
		}
		runs, err := once.New(locks)
		if err != nil {
			t.Fatal(err)
		}
		rules := grpcmw.Rules{
			chargepb.Payments_Charge_FullMethodName: {
				grpcmw.Idempotent(runs, grpcmw.AnyCaller()), grpcmw.Lock(locks, "account", grpcmw.Field("account")),
			},
		}
		options := append(opts, kgrpc.Address("127.0.0.1:0"), kgrpc.Options(grpcmw.ServerOptions(rules)...))
		server := kgrpc.NewServer(options...)
		chargepb.RegisterPaymentsServer(server, p)
		if err := grpcmw.Audit(server, rules); !errors.Is(err, core.ErrInvalid) || strings.Contains(err.Error(), "Payments") ||
			!strings.Contains(err.Error(), "/kratos.api.Metadata/ListServices") {
			t.Fatalf("got %v, want the methods of Kratos's own service only", err)
		}
		rules["/kratos.api.Metadata/ListServices"] = []grpcmw.Rule{grpcmw.None()}
		rules["/kratos.api.Metadata/GetServiceDesc"] = []grpcmw.Rule{grpcmw.None()}
		if err := grpcmw.Audit(server, rules); err != nil {
			t.Fatal(err)
		}
		url, err := server.Endpoint()
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- server.Start(context.Background()) }()
		conn, err := grpc.NewClient(url.Host, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = conn.Close()
			if err := errors.Join(server.Stop(context.Background()), <-served); err != nil {
				t.Error(err)
			}
			_ = locks.Close(context.Background())
		})
		clients[i] = chargepb.NewPaymentsClient(conn)
	}
	return clients
}

func charged(t *testing.T, c chargepb.PaymentsClient, key, account string) (receipt string, replayed bool, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", key), time.Minute)
	defer cancel()
	var trailer metadata.MD
	r, err := c.Charge(ctx, &chargepb.ChargeRequest{Account: account}, grpc.Trailer(&trailer))
	return r.GetId(), len(trailer.Get("idempotent-replayed")) > 0, err
}

func TestKratosGRPC(t *testing.T) {
	t.Parallel()
	inside, leave := make(chan struct{}), make(chan struct{})
	p := &payments{pay: func(context.Context) error {
		inside <- struct{}{} // blocks forever if the handler runs twice at once
		<-leave
		return nil
	}}
	c := onKratos(t, p, kgrpc.Timeout(0))
	first := make(chan error, 1)
	go func() {
		_, _, err := charged(t, c[0], "k", "5")
		first <- err
	}()
	<-inside
	// One is the same call, and one another call for the account.
	for _, busy := range [][2]string{{"k", "5"}, {"l", "5"}} {
		if _, _, err := charged(t, c[1], busy[0], busy[1]); status.Code(err) != codes.Aborted {
			t.Errorf("%s: got %v, want ABORTED", busy[0], err)
		}
	}
	close(leave)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if receipt, replayed, err := charged(t, c[1], "k", "5"); receipt != "run 1" || !replayed || err != nil {
		t.Errorf("got %q, %v, %v, want a replay of run 1", receipt, replayed, err)
	}
	if _, _, err := charged(t, c[1], "k", "6"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("another request: got %v, want FAILED_PRECONDITION", err)
	}
	if n := p.n.Load(); n != 1 {
		t.Errorf("got %d runs, want 1", n)
	}
}

// TestKratosGRPC_Timeout checks that a handler's context times out by default.
func TestKratosGRPC_Timeout(t *testing.T) {
	t.Parallel()
	p := &payments{pay: func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	if _, _, err := charged(t, onKratos(t, p)[0], "k", "5"); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v, want DEADLINE_EXCEEDED", err)
	}
}
