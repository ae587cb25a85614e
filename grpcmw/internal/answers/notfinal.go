package answers

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/internal/orders"
)

// NotFinal has the cases of responses that say that the work is not done.
func NotFinal(t *testing.T, serve Serve) {
	// busyTwice is a method whose first two responses are not final.
	busyTwice := func(runs *atomic.Int32, failure error) func(context.Context, *orders.Order) (*orders.Receipt, error) {
		return func(ctx context.Context, _ *orders.Order) (*orders.Receipt, error) {
			n := runs.Add(1)
			if n > 2 {
				return &orders.Receipt{Text: "paid"}, nil
			}
			if !once.NotFinal(ctx) {
				return nil, status.Error(codes.Internal, "no run")
			}
			return &orders.Receipt{Text: fmt.Sprint("channel busy ", n)}, failure
		}
	}
	for name, rules := range map[string]func(s *shop) []grpcmw.Rule{
		"one rule": func(s *shop) []grpcmw.Rule {
			return []grpcmw.Rule{grpcmw.Idempotent(s.runs(once.AtMostOnce()), grpcmw.AnyCaller())}
		},
		"two rules": func(s *shop) []grpcmw.Rule {
			other := func(context.Context, string, any) (string, error) { return "other", nil }
			return []grpcmw.Rule{grpcmw.Idempotent(s.runs(), other), grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller())}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, runs := newShop(t, serve), atomic.Int32{}
			s.pay = busyTwice(&runs, nil)
			s.open(on(orders.Orders_Pay_FullMethodName, rules(s)...))
			for i, want := range []string{"channel busy 1", "channel busy 2", "paid", "paid"} {
				r := s.call("5", key, "k")
				r.is(t, want)
				if r.replayed() != (i == 3) {
					t.Errorf("call %d: got replayed %v, want %v", i+1, r.replayed(), i == 3)
				}
			}
		})
	}
	t.Run("stored status", func(t *testing.T) {
		t.Parallel()
		s, runs := newShop(t, serve), atomic.Int32{}
		s.pay = busyTwice(&runs, status.Error(codes.FailedPrecondition, "channel busy"))
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller())))
		for range 2 {
			if r := s.call("5", key, "k"); status.Code(r.err) != codes.FailedPrecondition || r.replayed() {
				t.Errorf("got %v, want the handler's status", r.err)
			}
		}
		s.call("5", key, "k").is(t, "paid")
	})
}
