package answers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/internal/orders"
)

// Repeated tests repeated calls.
func Repeated(t *testing.T, serve Serve) {
	t.Run("duplicate gets the first reply", func(t *testing.T) {
		t.Parallel()
		s, runs := NewShop(t, serve), atomic.Int64{}
		s.OnPay = Counting(&runs)
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())))
		first := s.Call("5", IdempotencyKey, "k1")
		if first.Is(t, "run 1"); first.Replayed() || len(first.Header.Get("idempotent-replayed")) != 0 {
			t.Errorf("the first is marked: %v %v", first.Header, first.Trailer)
		}
		if a, r := s.Store.Attempts.Load(), s.Store.Releases.Load(); a != 1 || r != 1 {
			t.Errorf("a first run took %d and %d calls to the store, want 1 and 1", a, r)
		}
		for range 3 {
			again := s.Call("5", IdempotencyKey, "k1")
			if !proto.Equal(first.Receipt, again.Receipt) || again.Err != nil || !again.Replayed() || again.Header.Get("idempotent-replayed")[0] != "true" {
				t.Errorf("got %v, %v, %v; want %v", again.Receipt, again.Err, again.Trailer, first.Receipt)
			}
		}
		if a, r := s.Store.Attempts.Load(), s.Store.Releases.Load(); a != 4 || r != 1 {
			t.Errorf("after three replays there were %d and %d calls to the store, want 4 and 1", a, r)
		}
		s.Call("5", IdempotencyKey, "k2").Is(t, "run 2")
	})

	t.Run("type of a replay", func(t *testing.T) {
		t.Parallel()
		s, runs := NewShop(t, serve), atomic.Int64{}
		s.OnPay = Counting(&runs)
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())),
			func(ctx context.Context, next func(context.Context) (any, error)) (any, error) {
				reply, err := next(ctx)
				if _, ok := reply.(*orders.Receipt); !ok || err != nil {
					t.Errorf("the reply is a %T, %v", reply, err)
				}
				return reply, err
			})
		for range 2 {
			s.Call("5", IdempotencyKey, "k").Is(t, "run 1")
		}
	})

	t.Run("another request under the key", func(t *testing.T) { // covers hazard 60
		t.Parallel()
		s, runs := NewShop(t, serve), atomic.Int64{}
		s.OnPay, s.OnRefund = Counting(&runs), Counting(&runs)
		rule := grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())
		s.Open(grpcmw.Rules{orders.Orders_Pay_FullMethodName: {rule}, orders.Orders_Refund_FullMethodName: {rule}})
		s.Call("5", IdempotencyKey, "k").Is(t, "run 1")
		for name, r := range map[string]Reply{
			"another field":  ask(t.Context(), s.Client.Pay, &orders.Order{Id: "5", I32: 1}, IdempotencyKey, "k"),
			"another value":  s.Call("6", IdempotencyKey, "k"),
			"another method": ask(t.Context(), s.Client.Refund, &orders.Order{Id: "5"}, IdempotencyKey, "k"),
		} {
			r.Refused(t, codes.FailedPrecondition, grpcmw.ReasonMismatch)
			if got := r.Trailer.Get(Pushback); len(got) != 1 || got[0] != "-1" {
				t.Errorf("%s: the trailer is %v", name, got)
			}
		}
		s.Call("5", IdempotencyKey, "k").Is(t, "run 1")
		if runs.Load() != 1 {
			t.Errorf("%d runs", runs.Load())
		}
	})

	t.Run("two keys are two calls", func(t *testing.T) {
		t.Parallel()
		s, runs := NewShop(t, serve), atomic.Int64{}
		s.OnPay = Counting(&runs)
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())))
		s.Call("5", IdempotencyKey, "k1").Is(t, "run 1")
		s.Call("5", IdempotencyKey, "k2").Is(t, "run 2")
		s.Call("5", IdempotencyKey, "k1").Is(t, "run 1")
	})

	t.Run("scopes share no response", func(t *testing.T) {
		t.Parallel()
		s, runs := NewShop(t, serve), atomic.Int64{}
		s.OnPay = Counting(&runs)
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.Join(grpcmw.Metadata("tenant"), grpcmw.Metadata("user")))))
		for i, who := range [][2]string{{"a", "b"}, {"a:b", "c"}, {"a", "b:c"}, {"a", "c"}} {
			for range 2 {
				s.Call("5", IdempotencyKey, "k", "tenant", who[0], "user", who[1]).Is(t, fmt.Sprintf("run %d", i+1))
			}
		}
		s.Call("5", IdempotencyKey, "k", "tenant", "a").Refused(t, codes.InvalidArgument, grpcmw.ReasonKeyInvalid)
		s.Call("5", IdempotencyKey, "k", "tenant", "a", "user", strings.Repeat("u", 511)).Refused(t, codes.InvalidArgument, grpcmw.ReasonKeyInvalid)
	})

	t.Run("scope of several parts", func(t *testing.T) {
		t.Parallel()
		s, runs := NewShop(t, serve), atomic.Int64{}
		s.OnPay = Counting(&runs)
		scope := func(_ context.Context, _ string, req any) (string, error) {
			return req.(*orders.Order).GetItem().GetSku(), nil
		}
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), scope, grpcmw.Fingerprint(grpcmw.AnyCaller()))))
		for i, who := range []string{"a\x1fb", "a:b", ":a:b", "=:a:b", "=a", "a", "%3Aa:b", "a%3Ab", "a:\x1fb", "a\x1f:b"} {
			for range 2 {
				ask(t.Context(), s.Client.Pay, &orders.Order{Item: &orders.Item{Sku: who}}, IdempotencyKey, "k").Is(t, fmt.Sprintf("run %d", i+1))
			}
		}
	})

	t.Run("empty scope", func(t *testing.T) {
		t.Parallel()
		s := NewShop(t, serve)
		s.OnPay = MustNotRun(t)
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), func(context.Context, string, any) (string, error) { return "", nil })))
		r := s.Call("5", IdempotencyKey, "k")
		if r.Refused(t, codes.InvalidArgument, grpcmw.ReasonKeyInvalid); status.Convert(r.Err).Message() != "the scope is empty" {
			t.Errorf("got %v", r.Err)
		}
	})

	t.Run("empty fingerprint", func(t *testing.T) {
		t.Parallel()
		s := NewShop(t, serve)
		s.OnPay = MustNotRun(t)
		none := func(context.Context, string, any) (string, error) { return "", nil }
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), grpcmw.Fingerprint(none))))
		r := s.Call("5", IdempotencyKey, "k")
		if r.Refused(t, codes.InvalidArgument, grpcmw.ReasonKeyInvalid); status.Convert(r.Err).Message() != "the fingerprint is empty" {
			t.Errorf("got %v", r.Err)
		}
	})

	t.Run("fifty duplicates at once", func(t *testing.T) {
		t.Parallel()
		s, runs, inside, finish := NewShop(t, serve), atomic.Int64{}, make(chan struct{}, 50), make(chan struct{})
		s.OnPay = func(ctx context.Context, o *orders.Order) (*orders.Receipt, error) {
			inside <- struct{}{}
			<-finish
			return Counting(&runs)(ctx, o)
		}
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())))
		var wg sync.WaitGroup
		var refused atomic.Int64
		for range 50 {
			wg.Go(func() {
				r := s.Call("5", IdempotencyKey, "k")
				if r.Err == nil {
					r.Is(t, "run 1")
					return
				}
				r.Refused(t, codes.Aborted, grpcmw.ReasonInProgress)
				if len(r.Trailer.Get(Pushback)) != 1 {
					t.Errorf("the trailer is %v", r.Trailer)
				}
				refused.Add(1)
			})
		}
		Within(t, "one runs", inside)
		Eventually(t, "the others are answered", func() bool { return refused.Load() == 49 })
		close(finish)
		wg.Wait()
		if s.Call("5", IdempotencyKey, "k").Is(t, "run 1"); runs.Load() != 1 || len(inside) != 0 {
			t.Errorf("%d runs", runs.Load())
		}
	})

	t.Run("duplicates with Wait", func(t *testing.T) {
		t.Parallel()
		s, runs, inside, finish := NewShop(t, serve), atomic.Int64{}, make(chan struct{}, 9), make(chan struct{})
		s.OnPay = func(ctx context.Context, o *orders.Order) (*orders.Receipt, error) {
			inside <- struct{}{}
			<-finish
			return Counting(&runs)(ctx, o)
		}
		o := s.Runs(once.Acquire(core.Wait(time.Hour)))
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(o, grpcmw.AnyCaller())))
		var wg sync.WaitGroup
		for range 9 {
			wg.Go(func() { s.Call("5", IdempotencyKey, "k").Is(t, "run 1") })
		}
		Within(t, "one runs", inside)
		close(finish)
		wg.Wait()
		if runs.Load() != 1 {
			t.Errorf("%d runs", runs.Load())
		}
	})

	t.Run("methods without side effects pass", func(t *testing.T) {
		t.Parallel()
		s := NewShop(t, serve)
		s.Open(On(orders.Orders_Show_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())))
		ask(t.Context(), s.Client.Show, &orders.Order{Id: "5"}).Is(t, "no lease")
		if s.Store.Attempts.Load() != 0 {
			t.Error("the store was asked")
		}
	})

	t.Run("store down is UNAVAILABLE", func(t *testing.T) {
		t.Parallel()
		s := NewShop(t, serve)
		s.OnPay = MustNotRun(t)
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())))
		s.StoreFails(core.ErrUnavailable)
		r := s.Call("5", IdempotencyKey, "k")
		if r.Refused(t, codes.Unavailable, grpcmw.ReasonUnavailable); len(r.Trailer.Get(Pushback)) != 1 {
			t.Errorf("the trailer is %v", r.Trailer)
		}
	})

	t.Run("response not stored is sent", func(t *testing.T) {
		t.Parallel()
		s, gone := NewShop(t, serve), core.ErrLost
		s.OnPay = func(ctx context.Context, _ *orders.Order) (*orders.Receipt, error) {
			s.Store.ExtendFails.Store(&gone)
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, core.ErrLost) {
				t.Errorf("the cause is %v, want ErrLost", cause)
			}
			return &orders.Receipt{Text: "charged before the loss"}, nil
		}
		o := s.Runs(once.Acquire(core.TTL(2 * time.Second)))
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(o, grpcmw.AnyCaller())))
		s.Call("5", IdempotencyKey, "k").Is(t, "charged before the loss")
	})
}
