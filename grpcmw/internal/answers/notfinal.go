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

// NotFinal tests responses that the handler has marked as not final.
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
	for name, rules := range map[string]func(s *Shop) []grpcmw.Rule{
		"one rule": func(s *Shop) []grpcmw.Rule {
			return []grpcmw.Rule{grpcmw.Idempotent(s.Runs(once.AtMostOnce()), grpcmw.AnyCaller())}
		},
		"two rules": func(s *Shop) []grpcmw.Rule {
			other := func(context.Context, string, any) (string, error) { return "other", nil }
			return []grpcmw.Rule{grpcmw.Idempotent(s.Runs(), other), grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, runs := NewShop(t, serve), atomic.Int32{}
			s.OnPay = busyTwice(&runs, nil)
			s.Open(On(orders.Orders_Pay_FullMethodName, rules(s)...))
			for i, want := range []string{"channel busy 1", "channel busy 2", "paid", "paid"} {
				r := s.Call("5", IdempotencyKey, "k")
				r.Is(t, want)
				if r.Replayed() != (i == 3) {
					t.Errorf("call %d: got replayed %v, want %v", i+1, r.Replayed(), i == 3)
				}
			}
		})
	}
	t.Run("stored status", func(t *testing.T) {
		t.Parallel()
		s, runs := NewShop(t, serve), atomic.Int32{}
		s.OnPay = busyTwice(&runs, status.Error(codes.FailedPrecondition, "channel busy"))
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())))
		for range 2 {
			if r := s.Call("5", IdempotencyKey, "k"); status.Code(r.Err) != codes.FailedPrecondition || r.Replayed() {
				t.Errorf("got %v, want the handler's status", r.Err)
			}
		}
		s.Call("5", IdempotencyKey, "k").Is(t, "paid")
	})
}
