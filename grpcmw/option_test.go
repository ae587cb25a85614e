package grpcmw_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/grpcmw"
)

func TestOptions(t *testing.T) {
	t.Parallel()

	t.Run("Render", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		render := func(_ context.Context, r grpcmw.Refusal) *status.Status {
			if !errors.Is(r.Err, core.ErrBusy) || r.Lock != "order" || r.RetryAfter <= 0 || r.Method != Orders_Pay_FullMethodName || r.Code != codes.Aborted {
				t.Errorf("got %+v", r)
			}
			r.Code = codes.Unavailable
			return r.Status()
		}
		s.open(on(Orders_Pay_FullMethodName, s.Lock(grpcmw.Render(render))))
		s.Hold("order:5")
		r := s.Call("5")
		if r.Refused(t, codes.Unavailable, grpcmw.ReasonBusy); len(r.Trailer.Get(pushback)) != 1 {
			t.Errorf("the trailer is %v", r.Trailer)
		}
	})

	t.Run("Render cannot return OK", func(t *testing.T) {
		t.Parallel()
		for _, answer := range []*status.Status{nil, status.New(codes.OK, "fine")} {
			s := newShop(t)
			s.open(on(Orders_Pay_FullMethodName, s.Lock(grpcmw.Render(func(context.Context, grpcmw.Refusal) *status.Status { return answer }))))
			s.Hold("order:5")
			s.Call("5").Refused(t, codes.Aborted, grpcmw.ReasonBusy)
		}
	})

	t.Run("Skip", func(t *testing.T) {
		t.Parallel()
		s, runs := newShop(t), atomic.Int64{}
		s.OnRefund = counting(&runs)
		dry := grpcmw.Skip(func(_ context.Context, method string, req any) bool {
			return method == Orders_Pay_FullMethodName && req.(*Order).GetFlag()
		})
		noKey := grpcmw.Skip(func(ctx context.Context, _ string, _ any) bool {
			return len(metadata.ValueFromIncomingContext(ctx, key)) == 0
		})
		s.open(grpcmw.Rules{
			Orders_Pay_FullMethodName:    {s.Lock(dry)},
			Orders_Refund_FullMethodName: {grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), noKey)},
		})
		s.Hold("order:5")
		ask(t.Context(), s.Client.Pay, &Order{Id: "5", Flag: true}).Is(t, "no lease")
		s.Call("5").Refused(t, codes.Aborted, grpcmw.ReasonBusy)
		ask(t.Context(), s.Client.Refund, &Order{}).Is(t, "run 1")
		ask(t.Context(), s.Client.Refund, &Order{}).Is(t, "run 2")
		for range 2 {
			ask(t.Context(), s.Client.Refund, &Order{}, key, "k").Is(t, "run 3")
		}
	})

	t.Run("Key", func(t *testing.T) {
		t.Parallel()
		s, runs := newShop(t), atomic.Int64{}
		s.OnPay = counting(&runs)
		s.open(on(Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), grpcmw.Key(grpcmw.Field("coupon")))))
		a, b := "a b:c", "b"
		for _, c := range []struct {
			coupon *string
			want   string
		}{{&a, "run 1"}, {&b, "run 2"}, {&a, "run 1"}} {
			ask(t.Context(), s.Client.Pay, &Order{Coupon: c.coupon}).Is(t, c.want)
		}
		s.Call("5", key, "k").Refused(t, codes.InvalidArgument, grpcmw.ReasonKeyInvalid)
	})

	t.Run("Fingerprint", func(t *testing.T) {
		t.Parallel()
		s, runs := newShop(t), atomic.Int64{}
		s.OnPay, s.OnRefund = counting(&runs), counting(&runs)
		rule := grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), grpcmw.Fingerprint(grpcmw.Field("id")))
		s.open(grpcmw.Rules{Orders_Pay_FullMethodName: {rule}, Orders_Refund_FullMethodName: {rule}})
		for i := range 3 {
			ask(t.Context(), s.Client.Pay, &Order{Id: "5", I64: int64(i)}, key, "k").Is(t, "run 1")
		}
		s.Call("6", key, "k").Refused(t, codes.FailedPrecondition, grpcmw.ReasonMismatch)
		ask(t.Context(), s.Client.Refund, &Order{Id: "5"}, key, "k").Refused(t, codes.FailedPrecondition, grpcmw.ReasonMismatch)
		s.Call("", key, "k").Refused(t, codes.InvalidArgument, grpcmw.ReasonKeyInvalid)
	})
}

func TestLockAndIdempotent(t *testing.T) {
	t.Parallel()
	for name, outside := range map[string]bool{"Lock outside": true, "Lock inside": false} {
		t.Run("with "+name, func(t *testing.T) {
			t.Parallel()
			s, runs := newShop(t), atomic.Int64{}
			s.OnPay = func(ctx context.Context, o *Order) (*Receipt, error) {
				lease, found := core.LeaseFromContext(ctx)
				if _, isRun := once.AttemptFromContext(ctx); !found || lease.Key() != "order:5" || !isRun {
					t.Errorf("lease %v, run %v", found, isRun)
				}
				return counting(&runs)(ctx, o)
			}
			all := grpcmw.KeepIf(func(grpcmw.Kept) bool { return true })
			rules := []grpcmw.Rule{s.Lock(), grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), all)}
			if !outside {
				rules[0], rules[1] = rules[1], rules[0]
			}
			s.open(on(Orders_Pay_FullMethodName, rules...))

			// A refusal of the lock is never stored, whatever KeepIf returns.
			release := s.Hold("order:5")
			r := s.Call("5", key, "k")
			if r.Refused(t, codes.Aborted, grpcmw.ReasonBusy); len(r.Trailer.Get(pushback)) != 1 {
				t.Errorf("the trailer is %v", r.Trailer)
			}
			release()
			s.Call("5", key, "k").Is(t, "run 1")

			release = s.Hold("order:5")
			if r := s.Call("5", key, "k"); outside {
				r.Refused(t, codes.Aborted, grpcmw.ReasonBusy)
			} else if r.Is(t, "run 1"); !r.Replayed() { // a replay needs no lock
				t.Error("not marked")
			}
			release()
			s.Call("5", key, "k").Is(t, "run 1")
		})
	}
}
