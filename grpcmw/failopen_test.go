package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/grpcmw"
)

// opened counts the core.RanUnlocked events of the lock order.
type opened struct{ atomic.Int32 }

func (o *opened) Observe(_ context.Context, e core.Event) {
	if e.Kind == core.RanUnlocked && e.Name == "order" && errors.Is(e.Err, core.ErrUnavailable) {
		o.Add(1)
	}
}

func TestFailOpen(t *testing.T) {
	t.Parallel()
	down := fmt.Errorf("dial: %w", core.ErrUnavailable)
	// unlocked is a handler that reports whether it runs without its lock.
	unlocked := func(ctx context.Context, o *Order) (*Receipt, error) {
		r, err := ok(ctx, o)
		r.Text = fmt.Sprint(r.GetText(), ", unlocked: ", core.Unlocked(ctx))
		return r, err
	}

	t.Run("store down runs unlocked", func(t *testing.T) {
		t.Parallel()
		var n opened
		s := newShop(t, core.WithObserver(&n))
		s.OnPay = unlocked
		s.OnWatch = func(o *Order, out grpc.ServerStreamingServer[Receipt]) error {
			r, err := unlocked(out.Context(), o)
			return errors.Join(err, out.Send(r))
		}
		s.open(grpcmw.Rules{Orders_Pay_FullMethodName: {s.Lock(grpcmw.FailOpen())}, Orders_Watch_FullMethodName: {s.Lock(grpcmw.FailOpen())}})
		s.Call("5").Is(t, "order:5, unlocked: false")
		s.StoreFails(down)
		s.Call("5").Is(t, "no lease, unlocked: true")
		in, err := s.Client.Watch(t.Context(), &Order{Id: "5"})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := in.Recv(); err != nil || r.GetText() != "no lease, unlocked: true" {
			t.Errorf("got %v, %v", r, err)
		}
		if n.Load() != 2 {
			t.Errorf("%d are counted", n.Load())
		}
		s.Store.AcquireFails.Store(nil)
		s.Call("5").Is(t, "order:5, unlocked: false")
	})
	t.Run("other failures refuse", func(t *testing.T) {
		t.Parallel()
		var n opened
		s := newShop(t, core.WithObserver(&n))
		s.OnPay = mustNotRun(t)
		s.open(on(Orders_Pay_FullMethodName, s.Lock(grpcmw.FailOpen())))
		release := s.Hold("order:5")
		s.Call("5").Refused(t, codes.Aborted, grpcmw.ReasonBusy)
		release()
		s.StoreFails(core.ErrUnsupported)
		s.Call("5").Refused(t, codes.Internal, grpcmw.ReasonFailed)
		if err := s.Locker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Call("5").Refused(t, codes.Unavailable, grpcmw.ReasonUnavailable)
		if n.Load() != 0 {
			t.Errorf("%d are counted", n.Load())
		}
	})
	t.Run("lost outer lock refuses", func(t *testing.T) {
		t.Parallel()
		s, gone := newShop(t), core.ErrLost
		outer := grpcmw.Lock(s.Locker, "order", grpcmw.Field("id"))
		s.OnPay = mustNotRun(t)
		loses := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			lease, _ := core.LeaseFromContext(ctx)
			s.Store.ExtendFails.Store(&gone)
			if err := lease.Extend(ctx, time.Minute); !errors.Is(err, core.ErrLost) {
				t.Errorf("got %v", err)
			}
			return next(context.WithoutCancel(ctx), req)
		}
		s.open(nil, grpc.ChainUnaryInterceptor(
			grpcmw.UnaryServerInterceptor(on(Orders_Pay_FullMethodName, outer)), loses,
			grpcmw.UnaryServerInterceptor(on(Orders_Pay_FullMethodName, s.Lock(grpcmw.FailOpen()))),
		))
		s.Call("5").Refused(t, codes.Unavailable, grpcmw.ReasonUnavailable)
	})
	t.Run("lost grant is released", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.OnPay = unlocked
		s.open(on(Orders_Pay_FullMethodName, s.Lock(grpcmw.FailOpen())))
		s.Store.Unheard.Store(true)
		s.Call("5").Is(t, "no lease, unlocked: true")
		s.Store.Unheard.Store(false)
		eventually(t, "the key is free", func() bool { return s.isFree("order:5") })
		if s.Store.Releases.Load() == 0 {
			t.Error("got no release, want one")
		}
	})
	t.Run("without the option", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.OnPay = mustNotRun(t)
		s.open(on(Orders_Pay_FullMethodName, s.Lock()))
		s.StoreFails(down)
		s.Call("5").Refused(t, codes.Unavailable, grpcmw.ReasonUnavailable)
		panics(t, "FailOpen is an option of Lock", func() { grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), grpcmw.FailOpen()) })
	})
}
