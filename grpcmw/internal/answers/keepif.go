package answers

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/internal/orders"
)

// KeepIf tests the option KeepIf.
func KeepIf(t *testing.T, serve Serve) {
	t.Run("reply that says it failed", func(t *testing.T) {
		t.Parallel()
		s, runs := NewShop(t, serve), atomic.Int32{}
		s.OnPay = func(ctx context.Context, _ *orders.Order) (*orders.Receipt, error) {
			if err := grpc.SetHeader(ctx, metadata.Pairs("x-channel", "5")); err != nil {
				return nil, err
			}
			if err := grpc.SetTrailer(ctx, metadata.Pairs("x-end", "6")); err != nil {
				return nil, err
			}
			return &orders.Receipt{Text: []string{"busy", "busy", "paid"}[min(runs.Add(1)-1, 2)]}, nil
		}
		keep := func(k grpcmw.Kept) bool {
			r, ok := k.Reply.(*orders.Receipt)
			if !ok || k.Method != orders.Orders_Pay_FullMethodName || k.Status.Code() != codes.OK || !k.ByDefault || k.Unreplayable {
				t.Errorf("got %+v, want a reply", k)
			}
			if h, e := k.Header.Get("x-channel"), k.Trailer.Get("x-end"); len(h) != 1 || h[0] != "5" || len(e) != 1 || e[0] != "6" {
				t.Errorf("got header %v and trailer %v, want those of the handler", k.Header, k.Trailer)
			}
			return r.GetText() != "busy"
		}
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(once.AtMostOnce()), grpcmw.AnyCaller(), grpcmw.KeepIf(keep))))
		for i, want := range []string{"busy", "busy", "paid", "paid"} {
			r := s.Call("5", IdempotencyKey, "k")
			r.Is(t, want)
			if r.Replayed() != (i == 3) {
				t.Errorf("call %d: got replayed %v, want %v", i+1, r.Replayed(), i == 3)
			}
		}
	})
	t.Run("reply over the limit", func(t *testing.T) {
		t.Parallel()
		s, runs := NewShop(t, serve), atomic.Int32{}
		s.OnPay = func(context.Context, *orders.Order) (*orders.Receipt, error) {
			runs.Add(1)
			return &orders.Receipt{Blob: make([]byte, 1000)}, nil
		}
		keep := func(k grpcmw.Kept) bool { return !k.Unreplayable }
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), grpcmw.KeepIf(keep), grpcmw.AnswerLimit(500))))
		for i := range 2 {
			if r := s.Call("5", IdempotencyKey, "k"); r.Err != nil || runs.Load() != int32(i+1) {
				t.Errorf("got %v after %d runs, want a reply of run %d", r.Err, runs.Load(), i+1)
			}
		}
	})
	for name, c := range map[string]struct {
		opts []once.Option
		code codes.Code
	}{
		"panic at most once": {[]once.Option{once.AtMostOnce()}, codes.FailedPrecondition},
		"panic by default":   {nil, codes.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, runs := NewShop(t, serve), atomic.Int32{}
			s.OnPay = func(context.Context, *orders.Order) (*orders.Receipt, error) {
				runs.Add(1)
				return &orders.Receipt{}, nil
			}
			broken := grpcmw.KeepIf(func(grpcmw.Kept) bool { panic("at KeepIf") })
			s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(c.opts...), grpcmw.AnyCaller(), broken)), recovering)
			if r := s.Call("5", IdempotencyKey, "k"); status.Code(r.Err) != codes.Internal {
				t.Errorf("got %v, want the panic", r.Err)
			}
			if r := s.Call("5", IdempotencyKey, "k"); status.Code(r.Err) != c.code || r.Replayed() {
				t.Errorf("got %v, want %v", r.Err, c.code)
			}
		})
	}
	unasked := func(t *testing.T) grpcmw.Option {
		return grpcmw.KeepIf(func(k grpcmw.Kept) bool {
			t.Errorf("got %+v, want no call", k)
			return true
		})
	}
	t.Run("reply that is not final", func(t *testing.T) {
		t.Parallel()
		s, runs := NewShop(t, serve), atomic.Int32{}
		s.OnPay = func(ctx context.Context, _ *orders.Order) (*orders.Receipt, error) {
			once.NotFinal(ctx)
			runs.Add(1)
			return &orders.Receipt{Text: "busy"}, nil
		}
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), unasked(t))))
		for range 2 {
			s.Call("5", IdempotencyKey, "k").Is(t, "busy")
		}
		if runs.Load() != 2 {
			t.Errorf("got %d runs, want 2", runs.Load())
		}
	})
	t.Run("refusal inside", func(t *testing.T) {
		t.Parallel()
		s := NewShop(t, serve)
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), unasked(t)), s.Lock()))
		defer s.Hold("order:5")()
		for range 2 {
			s.Call("5", IdempotencyKey, "k").Refused(t, codes.Aborted, grpcmw.ReasonBusy)
		}
	})
}

// KeepMetadata tests the option KeepMetadata.
func KeepMetadata(t *testing.T, serve Serve) {
	binary := string([]byte{0, 0xff, '\n', 7})
	answers := func(ctx context.Context, o *orders.Order) (*orders.Receipt, error) {
		for _, set := range []error{
			grpc.SetHeader(ctx, metadata.Pairs("Location", "/orders/5", "x-link", "a", "x-link", "b", "x-unkept", "1")),
			grpc.SetHeader(ctx, metadata.Pairs("x-sum-bin", binary)),
			grpc.SetTrailer(ctx, metadata.Pairs("x-cost", "3", "x-unkept", "2")),
		} {
			if set != nil {
				return nil, set
			}
		}
		if o.GetId() == "error" {
			return nil, status.Error(codes.NotFound, "no such order")
		}
		return &orders.Receipt{Text: "paid"}, nil
	}
	keeps := grpcmw.KeepMetadata("location", "X-Link", "x-sum-bin", "x-cost")
	for _, id := range []string{"reply", "error"} {
		for name, rules := range map[string]func(s *Shop) []grpcmw.Rule{
			"one rule": func(s *Shop) []grpcmw.Rule {
				return []grpcmw.Rule{grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), keeps)}
			},
			"two rules": func(s *Shop) []grpcmw.Rule {
				other := func(context.Context, string, any) (string, error) { return "other", nil }
				return []grpcmw.Rule{grpcmw.Idempotent(s.Runs(), other, keeps), grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), keeps)}
			},
		} {
			t.Run(id+" "+name, func(t *testing.T) {
				t.Parallel()
				s := NewShop(t, serve)
				s.OnPay = answers
				s.Open(On(orders.Orders_Pay_FullMethodName, rules(s)...))
				for i := range 2 {
					r := s.Call(id, IdempotencyKey, "k")
					if r.Err != nil { // connect sends headers and trailers of an error as one set
						r.Header = metadata.Join(r.Header, r.Trailer)
						r.Trailer = r.Header
					}
					kept := i == 1
					if r.Replayed() != kept || len(r.Header.Get("x-unkept")) == 0 != kept || len(r.Trailer.Get("x-unkept")) == 0 != kept {
						t.Errorf("call %d: got %v with header %v and trailer %v", i+1, r.Err, r.Header, r.Trailer)
					}
					for want, got := range map[string][]string{
						"/orders/5": r.Header.Get("location"), "a b": r.Header.Get("x-link"), binary: r.Header.Get("x-sum-bin"), "3": r.Trailer.Get("x-cost"),
					} {
						if strings.Join(got, " ") != want {
							t.Errorf("call %d: got %q, want %q", i+1, got, want)
						}
					}
				}
			})
		}
	}
	t.Run("more than is kept", func(t *testing.T) {
		t.Parallel()
		s, runs := NewShop(t, serve), atomic.Int32{}
		s.OnPay = func(ctx context.Context, _ *orders.Order) (*orders.Receipt, error) {
			runs.Add(1)
			return &orders.Receipt{Text: "paid"}, grpc.SetTrailer(ctx, metadata.Pairs("x-cost", strings.Repeat("3", 64<<10)))
		}
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), keeps)))
		s.Call("5", IdempotencyKey, "k").Is(t, "paid")
		s.Call("5", IdempotencyKey, "k").Refused(t, codes.FailedPrecondition, grpcmw.ReasonUnreplayable)
		if runs.Load() != 1 {
			t.Errorf("got %d runs, want 1", runs.Load())
		}
	})
}
