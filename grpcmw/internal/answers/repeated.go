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

// Repeated has the cases of calls that are made again.
func Repeated(t *testing.T, serve Serve) {
	t.Run("duplicate gets the first reply", func(t *testing.T) {
		t.Parallel()
		s, runs := newShop(t, serve), atomic.Int64{}
		s.pay = counting(&runs)
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller())))
		first := s.call("5", key, "k1")
		if first.is(t, "run 1"); first.replayed() || len(first.header.Get("idempotent-replayed")) != 0 {
			t.Errorf("the first is marked: %v %v", first.header, first.trailer)
		}
		if a, r := s.store.attempts.Load(), s.store.releases.Load(); a != 1 || r != 1 {
			t.Errorf("a first run took %d and %d calls to the store, want 1 and 1", a, r)
		}
		for range 3 {
			again := s.call("5", key, "k1")
			if !proto.Equal(first.Receipt, again.Receipt) || again.err != nil || !again.replayed() || again.header.Get("idempotent-replayed")[0] != "true" {
				t.Errorf("got %v, %v, %v; want %v", again.Receipt, again.err, again.trailer, first.Receipt)
			}
		}
		if a, r := s.store.attempts.Load(), s.store.releases.Load(); a != 4 || r != 1 {
			t.Errorf("after three replays there were %d and %d calls to the store, want 4 and 1", a, r)
		}
		s.call("5", key, "k2").is(t, "run 2")
	})

	t.Run("type of a replay", func(t *testing.T) {
		t.Parallel()
		s, runs := newShop(t, serve), atomic.Int64{}
		s.pay = counting(&runs)
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller())),
			func(ctx context.Context, next func(context.Context) (any, error)) (any, error) {
				reply, err := next(ctx)
				if _, ok := reply.(*orders.Receipt); !ok || err != nil {
					t.Errorf("the reply is a %T, %v", reply, err)
				}
				return reply, err
			})
		for range 2 {
			s.call("5", key, "k").is(t, "run 1")
		}
	})

	t.Run("another request under the key", func(t *testing.T) { // hazard 60
		t.Parallel()
		s, runs := newShop(t, serve), atomic.Int64{}
		s.pay, s.refund = counting(&runs), counting(&runs)
		rule := grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller())
		s.open(grpcmw.Rules{orders.Orders_Pay_FullMethodName: {rule}, orders.Orders_Refund_FullMethodName: {rule}})
		s.call("5", key, "k").is(t, "run 1")
		for name, r := range map[string]reply{
			"another field":  ask(t.Context(), s.client.Pay, &orders.Order{Id: "5", I32: 1}, key, "k"),
			"another value":  s.call("6", key, "k"),
			"another method": ask(t.Context(), s.client.Refund, &orders.Order{Id: "5"}, key, "k"),
		} {
			r.refused(t, codes.FailedPrecondition, grpcmw.ReasonMismatch)
			if got := r.trailer.Get(pushback); len(got) != 1 || got[0] != "-1" {
				t.Errorf("%s: the trailer is %v", name, got)
			}
		}
		s.call("5", key, "k").is(t, "run 1")
		if runs.Load() != 1 {
			t.Errorf("%d runs", runs.Load())
		}
	})

	t.Run("two keys are two calls", func(t *testing.T) {
		t.Parallel()
		s, runs := newShop(t, serve), atomic.Int64{}
		s.pay = counting(&runs)
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller())))
		s.call("5", key, "k1").is(t, "run 1")
		s.call("5", key, "k2").is(t, "run 2")
		s.call("5", key, "k1").is(t, "run 1")
	})

	t.Run("scopes share no response", func(t *testing.T) {
		t.Parallel()
		s, runs := newShop(t, serve), atomic.Int64{}
		s.pay = counting(&runs)
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.Join(grpcmw.Metadata("tenant"), grpcmw.Metadata("user")))))
		for i, who := range [][2]string{{"a", "b"}, {"a:b", "c"}, {"a", "b:c"}, {"a", "c"}} {
			for range 2 {
				s.call("5", key, "k", "tenant", who[0], "user", who[1]).is(t, fmt.Sprintf("run %d", i+1))
			}
		}
		s.call("5", key, "k", "tenant", "a").refused(t, codes.InvalidArgument, grpcmw.ReasonKeyInvalid)
		s.call("5", key, "k", "tenant", "a", "user", strings.Repeat("u", 511)).refused(t, codes.InvalidArgument, grpcmw.ReasonKeyInvalid)
	})

	t.Run("scope of several parts", func(t *testing.T) {
		t.Parallel()
		s, runs := newShop(t, serve), atomic.Int64{}
		s.pay = counting(&runs)
		scope := func(_ context.Context, _ string, req any) (string, error) {
			return req.(*orders.Order).GetItem().GetSku(), nil
		}
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), scope, grpcmw.Fingerprint(grpcmw.AnyCaller()))))
		for i, who := range []string{"a\x1fb", "a:b", ":a:b", "=:a:b", "=a", "a", "%3Aa:b", "a%3Ab", "a:\x1fb", "a\x1f:b"} {
			for range 2 {
				ask(t.Context(), s.client.Pay, &orders.Order{Item: &orders.Item{Sku: who}}, key, "k").is(t, fmt.Sprintf("run %d", i+1))
			}
		}
	})

	t.Run("empty scope", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, serve)
		s.pay = mustNotRun(t)
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), func(context.Context, string, any) (string, error) { return "", nil })))
		r := s.call("5", key, "k")
		if r.refused(t, codes.InvalidArgument, grpcmw.ReasonKeyInvalid); status.Convert(r.err).Message() != "the scope is empty" {
			t.Errorf("got %v", r.err)
		}
	})

	t.Run("empty fingerprint", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, serve)
		s.pay = mustNotRun(t)
		none := func(context.Context, string, any) (string, error) { return "", nil }
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller(), grpcmw.Fingerprint(none))))
		r := s.call("5", key, "k")
		if r.refused(t, codes.InvalidArgument, grpcmw.ReasonKeyInvalid); status.Convert(r.err).Message() != "the fingerprint is empty" {
			t.Errorf("got %v", r.err)
		}
	})

	t.Run("fifty duplicates at once", func(t *testing.T) {
		t.Parallel()
		s, runs, inside, finish := newShop(t, serve), atomic.Int64{}, make(chan struct{}, 50), make(chan struct{})
		s.pay = func(ctx context.Context, o *orders.Order) (*orders.Receipt, error) {
			inside <- struct{}{}
			<-finish
			return counting(&runs)(ctx, o)
		}
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller())))
		var wg sync.WaitGroup
		var refused atomic.Int64
		for range 50 {
			wg.Go(func() {
				r := s.call("5", key, "k")
				if r.err == nil {
					r.is(t, "run 1")
					return
				}
				r.refused(t, codes.Aborted, grpcmw.ReasonInProgress)
				if len(r.trailer.Get(pushback)) != 1 {
					t.Errorf("the trailer is %v", r.trailer)
				}
				refused.Add(1)
			})
		}
		within(t, "one runs", inside)
		eventually(t, "the others are answered", func() bool { return refused.Load() == 49 })
		close(finish)
		wg.Wait()
		if s.call("5", key, "k").is(t, "run 1"); runs.Load() != 1 || len(inside) != 0 {
			t.Errorf("%d runs", runs.Load())
		}
	})

	t.Run("duplicates with core.Wait", func(t *testing.T) {
		t.Parallel()
		s, runs, inside, finish := newShop(t, serve), atomic.Int64{}, make(chan struct{}, 9), make(chan struct{})
		s.pay = func(ctx context.Context, o *orders.Order) (*orders.Receipt, error) {
			inside <- struct{}{}
			<-finish
			return counting(&runs)(ctx, o)
		}
		o := s.runs(once.Acquire(core.Wait(time.Hour)))
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(o, grpcmw.AnyCaller())))
		var wg sync.WaitGroup
		for range 9 {
			wg.Go(func() { s.call("5", key, "k").is(t, "run 1") })
		}
		within(t, "one runs", inside)
		close(finish)
		wg.Wait()
		if runs.Load() != 1 {
			t.Errorf("%d runs", runs.Load())
		}
	})

	t.Run("methods without side effects pass", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, serve)
		s.open(on(orders.Orders_Show_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller())))
		ask(t.Context(), s.client.Show, &orders.Order{Id: "5"}).is(t, "no lease")
		if s.store.attempts.Load() != 0 {
			t.Error("the store was asked")
		}
	})

	t.Run("store down is UNAVAILABLE", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, serve)
		s.pay = mustNotRun(t)
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller())))
		s.storeFails(core.ErrUnavailable)
		r := s.call("5", key, "k")
		if r.refused(t, codes.Unavailable, grpcmw.ReasonUnavailable); len(r.trailer.Get(pushback)) != 1 {
			t.Errorf("the trailer is %v", r.trailer)
		}
	})

	t.Run("response not stored is sent", func(t *testing.T) {
		t.Parallel()
		s, gone := newShop(t, serve), core.ErrLost
		s.pay = func(ctx context.Context, _ *orders.Order) (*orders.Receipt, error) {
			s.store.extend.Store(&gone)
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, core.ErrLost) {
				t.Errorf("the cause is %v, want ErrLost", cause)
			}
			return &orders.Receipt{Text: "charged before the loss"}, nil
		}
		o := s.runs(once.Acquire(core.TTL(2 * time.Second)))
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(o, grpcmw.AnyCaller())))
		s.call("5", key, "k").is(t, "charged before the loss")
	})
}
