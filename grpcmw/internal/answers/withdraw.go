package answers

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/internal/orders"
)

// Withdraw tests handlers that refuse a call before they have done anything. The call's
// key is then free for a corrected call.
func Withdraw(t *testing.T, serve Serve) {
	notValid := once.Withdraw(status.Error(codes.InvalidArgument, "order missing"))
	for name, c := range map[string]struct {
		err  error
		free bool
	}{
		"not valid":                 {notValid, true},
		"an error without the mark": {status.Error(codes.InvalidArgument, "order missing"), false},
		"not known":                 {errors.Join(notValid, once.ErrIndeterminate), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, runs := NewShop(t, serve), atomic.Int32{}
			s.OnPay = func(ctx context.Context, o *orders.Order) (*orders.Receipt, error) {
				if runs.Add(1) == 1 {
					return nil, c.err
				}
				return attemptOf(ctx, o)
			}
			other := func(context.Context, string, any) (string, error) { return "other", nil }
			s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), other), grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())))
			if r := s.Call("5", IdempotencyKey, "k"); c.free && (status.Code(r.Err) != codes.InvalidArgument || status.Convert(r.Err).Message() != "order missing") {
				t.Errorf("got %v", r.Err)
			}
			r := s.Call("6", IdempotencyKey, "k")
			if c.free {
				r.Is(t, "attempt 1")
			} else if status.Code(r.Err) != codes.FailedPrecondition || runs.Load() != 1 {
				t.Errorf("got %v, %v after %d runs", r.Receipt, r.Err, runs.Load())
			}
		})
	}
}
