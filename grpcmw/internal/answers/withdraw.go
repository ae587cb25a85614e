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

// Withdraw has the cases of handlers that have done nothing, whose key is free for a
// corrected call.
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
			s, runs := newShop(t, serve), atomic.Int32{}
			s.pay = func(ctx context.Context, o *orders.Order) (*orders.Receipt, error) {
				if runs.Add(1) == 1 {
					return nil, c.err
				}
				return attemptOf(ctx, o)
			}
			other := func(context.Context, string, any) (string, error) { return "other", nil }
			s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), other), grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller())))
			if r := s.call("5", key, "k"); c.free && (status.Code(r.err) != codes.InvalidArgument || status.Convert(r.err).Message() != "order missing") {
				t.Errorf("got %v", r.err)
			}
			r := s.call("6", key, "k")
			if c.free {
				r.is(t, "attempt 1")
			} else if status.Code(r.err) != codes.FailedPrecondition || runs.Load() != 1 {
				t.Errorf("got %v, %v after %d runs", r.Receipt, r.err, runs.Load())
			}
		})
	}
}
