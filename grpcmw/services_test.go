package grpcmw_test

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/grpcmw"
)

// TestServicesOfOneStore tests two services with one store. One service passes its
// client's key on to the other service.
func TestServicesOfOneStore(t *testing.T) {
	t.Parallel()
	method := func(_ context.Context, fullMethod string, _ any) (string, error) { return fullMethod, nil }
	for name, c := range map[string]struct {
		scope grpcmw.KeyFunc
		want  codes.Code
	}{
		"one scope":           {grpcmw.AnyCaller(), codes.Aborted},
		"scopes with methods": {grpcmw.Join(method, grpcmw.AnyCaller()), codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locks, err := core.New(memstore.New())
			if err != nil {
				t.Fatal(err)
			}
			runs, err := once.New(locks)
			if err != nil {
				t.Fatal(err)
			}
			charges := 0
			const charge = "/test.Billing/Charge"
			inner := grpcmw.UnaryServerInterceptor(on(charge, grpcmw.Idempotent(runs, c.scope)))
			outer := grpcmw.UnaryServerInterceptor(on(Orders_Pay_FullMethodName, grpcmw.Idempotent(runs, c.scope)))
			ctx := grpc.NewContextWithServerTransportStream(metadata.NewIncomingContext(t.Context(), metadata.Pairs(key, "k")), transport{})
			for range 2 {
				got, err := outer(ctx, &Order{Id: "42"}, &grpc.UnaryServerInfo{FullMethod: Orders_Pay_FullMethodName}, func(ctx context.Context, req any) (any, error) {
					return inner(ctx, req, &grpc.UnaryServerInfo{FullMethod: charge}, func(context.Context, any) (any, error) {
						charges++
						return &Receipt{Text: fmt.Sprint("charge ", charges)}, nil
					})
				})
				if status.Code(err) != c.want {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if r, _ := got.(*Receipt); c.want == codes.OK && r.GetText() != "charge 1" {
					t.Errorf("got %v, want the first charge", got)
				}
			}
		})
	}
}
