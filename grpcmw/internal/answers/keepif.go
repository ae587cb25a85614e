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

// KeepIf has the cases of the option of that name.
func KeepIf(t *testing.T, serve Serve) {
	t.Run("reply that says it failed", func(t *testing.T) {
		t.Parallel()
		s, runs := newShop(t, serve), atomic.Int32{}
		s.pay = func(ctx context.Context, _ *orders.Order) (*orders.Receipt, error) {
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
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(once.AtMostOnce()), grpcmw.AnyCaller(), grpcmw.KeepIf(keep))))
		for i, want := range []string{"busy", "busy", "paid", "paid"} {
			r := s.call("5", key, "k")
			r.is(t, want)
			if r.replayed() != (i == 3) {
				t.Errorf("call %d: got replayed %v, want %v", i+1, r.replayed(), i == 3)
			}
		}
	})
	t.Run("reply over the limit", func(t *testing.T) {
		t.Parallel()
		s, runs := newShop(t, serve), atomic.Int32{}
		s.pay = func(context.Context, *orders.Order) (*orders.Receipt, error) {
			runs.Add(1)
			return &orders.Receipt{Blob: make([]byte, 1000)}, nil
		}
		keep := func(k grpcmw.Kept) bool { return !k.Unreplayable }
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller(), grpcmw.KeepIf(keep), grpcmw.AnswerLimit(500))))
		for i := range 2 {
			if r := s.call("5", key, "k"); r.err != nil || runs.Load() != int32(i+1) {
				t.Errorf("got %v after %d runs, want a reply of run %d", r.err, runs.Load(), i+1)
			}
		}
	})
	for name, c := range map[string]struct {
		opts []once.Option
		code codes.Code
	}{
		"panic, AtMostOnce": {[]once.Option{once.AtMostOnce()}, codes.FailedPrecondition},
		"panic":             {nil, codes.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, runs := newShop(t, serve), atomic.Int32{}
			s.pay = func(context.Context, *orders.Order) (*orders.Receipt, error) {
				runs.Add(1)
				return &orders.Receipt{}, nil
			}
			broken := grpcmw.KeepIf(func(grpcmw.Kept) bool { panic("at KeepIf") })
			s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(c.opts...), grpcmw.AnyCaller(), broken)), recovering)
			if r := s.call("5", key, "k"); status.Code(r.err) != codes.Internal {
				t.Errorf("got %v, want the panic", r.err)
			}
			if r := s.call("5", key, "k"); status.Code(r.err) != c.code || r.replayed() {
				t.Errorf("got %v, want %v", r.err, c.code)
			}
		})
	}
	t.Run("refusal inside", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, serve)
		keep := grpcmw.KeepIf(func(k grpcmw.Kept) bool {
			t.Errorf("got %+v, want no call", k)
			return true
		})
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller(), keep), s.lock()))
		defer s.hold("order:5")()
		for range 2 {
			s.call("5", key, "k").refused(t, codes.Aborted, grpcmw.ReasonBusy)
		}
	})
}

// KeepMetadata has the cases of the option of that name.
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
		for name, rules := range map[string]func(s *shop) []grpcmw.Rule{
			"one rule": func(s *shop) []grpcmw.Rule {
				return []grpcmw.Rule{grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller(), keeps)}
			},
			"two rules": func(s *shop) []grpcmw.Rule {
				other := func(context.Context, string, any) (string, error) { return "other", nil }
				return []grpcmw.Rule{grpcmw.Idempotent(s.runs(), other, keeps), grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller(), keeps)}
			},
		} {
			t.Run(id+", "+name, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, serve)
				s.pay = answers
				s.open(on(orders.Orders_Pay_FullMethodName, rules(s)...))
				for i := range 2 {
					r := s.call(id, key, "k")
					if r.err != nil { // connect sends one set of headers with an error
						r.header = metadata.Join(r.header, r.trailer)
						r.trailer = r.header
					}
					kept := i == 1
					if r.replayed() != kept || len(r.header.Get("x-unkept")) == 0 != kept || len(r.trailer.Get("x-unkept")) == 0 != kept {
						t.Errorf("call %d: got %v with header %v and trailer %v", i+1, r.err, r.header, r.trailer)
					}
					for want, got := range map[string][]string{
						"/orders/5": r.header.Get("location"), "a b": r.header.Get("x-link"), binary: r.header.Get("x-sum-bin"), "3": r.trailer.Get("x-cost"),
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
		s, runs := newShop(t, serve), atomic.Int32{}
		s.pay = func(ctx context.Context, _ *orders.Order) (*orders.Receipt, error) {
			runs.Add(1)
			return &orders.Receipt{Text: "paid"}, grpc.SetTrailer(ctx, metadata.Pairs("x-cost", strings.Repeat("3", 64<<10)))
		}
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller(), keeps)))
		s.call("5", key, "k").is(t, "paid")
		s.call("5", key, "k").refused(t, codes.FailedPrecondition, grpcmw.ReasonUnreplayable)
		if runs.Load() != 1 {
			t.Errorf("got %d runs, want 1", runs.Load())
		}
	})
}
