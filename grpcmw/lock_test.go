package grpcmw_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/grpcmw"
)

func TestLock(t *testing.T) {
	t.Parallel()

	t.Run("handler runs under the lock", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.OnPay = func(ctx context.Context, o *Order) (*Receipt, error) {
			lease, _ := core.LeaseFromContext(ctx)
			if s.isFree(core.Key("order", "a:1")) || lease.Token() == 0 || lease.Context().Err() != nil {
				t.Error("no live lease of the key")
			}
			return ok(ctx, o)
		}
		s.open(on(Orders_Pay_FullMethodName, s.Lock()))
		for range 50 { // the key is free when the client has its response
			s.Call("a:1").Is(t, "order:a%3A1")
		}
	})

	t.Run("one at a time per key", func(t *testing.T) {
		t.Parallel()
		s, inside, finish := newShop(t), make(chan string, 9), make(chan struct{})
		s.OnPay = func(ctx context.Context, o *Order) (*Receipt, error) {
			inside <- o.GetId()
			<-finish
			return ok(ctx, o)
		}
		s.open(on(Orders_Pay_FullMethodName, s.Lock()))
		var wg sync.WaitGroup
		for _, id := range []string{"1", "2"} {
			wg.Go(func() { s.Call(id).Is(t, "order:"+id) })
		}
		within(t, "one is inside", inside)
		within(t, "and the other one", inside)
		for range 5 {
			s.Call("1").Refused(t, codes.Aborted, grpcmw.ReasonBusy)
		}
		close(finish)
		wg.Wait()
		if len(inside) != 0 {
			t.Error("a refused call ran")
		}
	})

	t.Run("call waits", func(t *testing.T) {
		t.Parallel()
		s, answer := newShop(t), make(chan reply, 1)
		s.open(on(Orders_Pay_FullMethodName, s.Lock(grpcmw.Acquire(core.Wait(time.Hour)))))
		release := s.Hold("order:5")
		go func() { answer <- s.Call("5") }()
		eventually(t, "the call waits", func() bool { return s.Store.Attempts.Load() > 2 })
		release()
		within(t, "the call is answered", answer).Is(t, "order:5")
	})

	t.Run("Also locks both accounts", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.OnPay = func(ctx context.Context, _ *Order) (*Receipt, error) {
			_, from := core.LeaseOf(ctx, "account:a")
			_, to := core.LeaseOf(ctx, "account:b")
			if !from || !to || s.isFree("account:a") || s.isFree("account:b") {
				t.Error("not both are locked")
			}
			return &Receipt{Text: "done"}, nil
		}
		s.open(on(Orders_Pay_FullMethodName, grpcmw.Lock(s.Locker, "account", grpcmw.Field("id"), grpcmw.Also(grpcmw.Field("coupon")),
			grpcmw.Acquire(core.Wait(time.Hour)))))
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				from, to := "a", "b"
				if i%2 == 0 {
					from, to = to, from
				}
				ask(t.Context(), s.Client.Pay, &Order{Id: from, Coupon: &to}).Is(t, "done")
			})
		}
		wg.Wait()
		same := "a"
		s.OnPay = ok
		ask(t.Context(), s.Client.Pay, &Order{Id: same, Coupon: &same}).Is(t, "account:a")
	})

	t.Run("order of rules and reentry", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.OnPay = func(ctx context.Context, o *Order) (*Receipt, error) {
			if s.isFree("order:5") || s.isFree("tenant:acme") {
				t.Error("a key is free while the handler runs")
			}
			return ok(ctx, o)
		}
		s.open(on(Orders_Pay_FullMethodName,
			grpcmw.Lock(s.Locker, "tenant", grpcmw.Metadata("X-Tenant")), s.Lock(), s.Lock()))
		s.Call("5", "x-tenant", "acme").Is(t, "order:5")
		s.Hold("tenant:acme")
		s.Hold("order:5")
		if info := s.Call("5", "x-tenant", "acme").Refused(t, codes.Aborted, grpcmw.ReasonBusy); info.GetMetadata()["lock"] != "tenant" {
			t.Errorf("refused by %v", info)
		}
	})

	t.Run("methods without rules pass", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.open(on(Orders_Show_FullMethodName, s.Lock()))
		s.Call("5").Is(t, "no lease")
		ask(t.Context(), s.Client.Show, &Order{Id: "5"}).Is(t, "order:5")
		if n := s.Store.Attempts.Load(); n != 1 {
			t.Errorf("the store was asked %d times", n)
		}
	})

	t.Run("response of the handler stands", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.OnPay = func(context.Context, *Order) (*Receipt, error) {
			return nil, status.Error(codes.Aborted, "by the handler")
		}
		s.open(on(Orders_Pay_FullMethodName, s.Lock()))
		r := s.Call("5")
		if st := status.Convert(r.Err); st.Code() != codes.Aborted || st.Message() != "by the handler" || len(st.Details()) != 0 || len(r.Trailer["grpc-retry-pushback-ms"]) != 0 {
			t.Errorf("got %v, %v", r.Err, r.Trailer)
		}
	})
}

func TestHandlerUnderLock(t *testing.T) {
	t.Parallel()

	t.Run("client leaves", func(t *testing.T) {
		t.Parallel()
		s, inside, ended := newShop(t), make(chan struct{}), make(chan error, 1)
		s.OnPay = func(ctx context.Context, _ *Order) (*Receipt, error) {
			close(inside)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			if s.isFree("order:5") {
				t.Error("the key is free while the handler runs")
			}
			return &Receipt{}, nil
		}
		s.open(on(Orders_Pay_FullMethodName, s.Lock()))
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { gone <- ask(ctx, s.Client.Pay, &Order{Id: "5"}).Err }()
		within(t, "the handler runs", inside)
		leave()
		if err := within(t, "the client has left", gone); status.Code(err) != codes.Canceled {
			t.Errorf("the client got %v", err)
		}
		if err := within(t, "the handler's context is done", ended); !errors.Is(err, context.Canceled) {
			t.Errorf("the cause is %v", err)
		}
		eventually(t, "the key is free", func() bool { return s.isFree("order:5") })
	})

	for name, inside := range map[string]bool{"outside": false, "inside": true} {
		t.Run("panic recovering "+name, func(t *testing.T) { // hazard 50
			t.Parallel()
			s := newShop(t)
			recovering := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
				defer func() {
					if reason := recover(); reason != nil {
						if free := s.isFree("order:5"); free == inside {
							t.Errorf("free when it is recovered: %v", free)
						}
						err = status.Errorf(codes.Internal, "recovered: %v", reason)
					}
				}()
				return next(ctx, req)
			}
			s.OnPay = func(context.Context, *Order) (*Receipt, error) { panic("card reader on fire") }
			rules := on(Orders_Pay_FullMethodName, s.Lock())
			if inside {
				s.open(nil, grpc.ChainUnaryInterceptor(grpcmw.UnaryServerInterceptor(rules), recovering))
			} else {
				s.open(rules, grpc.ChainUnaryInterceptor(recovering))
			}
			for range 3 {
				if r := s.Call("5"); status.Code(r.Err) != codes.Internal || status.Convert(r.Err).Message() != "recovered: card reader on fire" {
					t.Errorf("got %v", r.Err)
				}
				if !s.isFree("order:5") {
					t.Error("the key is not free")
				}
			}
		})
	}

	t.Run("lost lease", func(t *testing.T) {
		t.Parallel()
		s, gone := newShop(t), core.ErrLost
		s.OnPay = func(ctx context.Context, _ *Order) (*Receipt, error) {
			s.Store.ExtendFails.Store(&gone)
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, core.ErrLost) {
				t.Errorf("the cause is %v, want ErrLost", cause)
			}
			return &Receipt{Text: "charged before the loss"}, nil
		}
		s.open(on(Orders_Pay_FullMethodName, s.Lock(grpcmw.Acquire(core.TTL(2*time.Second)))))
		s.Call("5").Is(t, "charged before the loss")
	})
}
