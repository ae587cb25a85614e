package answers

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/internal/orders"
)

// Kept has the cases of responses that are stored without an option.
func Kept(t *testing.T, serve Serve) {
	t.Run("errors", func(t *testing.T) {
		t.Parallel()
		s, runs := newShop(t, serve), atomic.Int64{}
		s.pay = func(ctx context.Context, o *orders.Order) (*orders.Receipt, error) {
			attempt, _ := once.AttemptFromContext(ctx)
			st, err := status.New(codes.Code(o.GetI32()), fmt.Sprintf("run %d", attempt)).
				WithDetails(&errdetails.PreconditionFailure{Violations: []*errdetails.PreconditionFailure_Violation{{Subject: "card"}}})
			if err != nil {
				t.Error(err)
			}
			runs.Add(1)
			return nil, st.Err()
		}
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller())))
		kept := []codes.Code{codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange}
		for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
			runs.Store(0)
			var first, second reply
			for _, r := range []*reply{&first, &second} {
				*r = ask(t.Context(), s.client.Pay, &orders.Order{I32: int32(code)}, key, code.String())
			}
			a, b := status.Convert(first.err), status.Convert(second.err)
			want, text := int64(2), "run 2"
			for _, k := range kept {
				if k == code {
					want, text = 1, "run 1"
				}
			}
			if a.Code() != code || b.Code() != code || runs.Load() != want || b.Message() != text || len(b.Details()) != 1 || second.replayed() != (want == 1) {
				t.Errorf("%v: %d runs, got %v, then %v %v %v; want %d runs", code, runs.Load(), a, b, b.Details(), second.trailer, want)
			}
			if want == 1 && (!proto.Equal(a.Proto(), b.Proto()) || len(second.header) != 0) {
				t.Errorf("%v: got %v with %v, want %v without a header", code, b, second.header, a)
			}
		}
	})

	t.Run("nil reply", func(t *testing.T) {
		t.Parallel()
		s, runs := newShop(t, serve), atomic.Int64{}
		s.pay = func(context.Context, *orders.Order) (*orders.Receipt, error) { runs.Add(1); return nil, nil }
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller())))
		for i := range 2 {
			if r := s.call("5", key, "k"); r.err != nil || runs.Load() != 1 || r.replayed() != (i == 1) {
				t.Errorf("got %v after %d runs, %v", r.err, runs.Load(), r.trailer)
			}
		}
	})

	t.Run("error with invalid UTF-8", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, serve)
		s.pay = func(context.Context, *orders.Order) (*orders.Receipt, error) {
			return nil, status.Error(codes.NotFound, "no \xff\xfe here")
		}
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller())))
		first, second := s.call("5", key, "k"), s.call("5", key, "k")
		if a, b := status.Convert(first.err), status.Convert(second.err); a.Code() != codes.NotFound || a.String() != b.String() || !second.replayed() {
			t.Errorf("got %v, then %v", a, b)
		}
	})

	t.Run("KeepIf sees errors as sent", func(t *testing.T) {
		t.Parallel()
		for want, failure := range map[codes.Code]error{
			codes.Unknown:          errors.New("ledger: out of sync"),
			codes.DeadlineExceeded: fmt.Errorf("bank: %w", context.DeadlineExceeded),
		} {
			s, runs, asked := newShop(t, serve), atomic.Int64{}, atomic.Int64{}
			s.pay = func(context.Context, *orders.Order) (*orders.Receipt, error) { runs.Add(1); return nil, failure }
			s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller(), grpcmw.KeepIf(func(k grpcmw.Kept) bool {
				asked.Store(int64(k.Status.Code()))
				return true
			}))))
			first, second := s.call("5", key, "k"), s.call("5", key, "k")
			if a, b := status.Convert(first.err), status.Convert(second.err); a.Code() != want || a.String() != b.String() || !second.replayed() {
				t.Errorf("got %v, then %v", a, b)
			}
			if runs.Load() != 1 || asked.Load() != int64(want) {
				t.Errorf("%d runs, asked about %v", runs.Load(), codes.Code(asked.Load()))
			}
		}
	})

	t.Run("stopped handler is not for KeepIf", func(t *testing.T) {
		t.Parallel()
		for _, atMostOnce := range []bool{false, true} {
			s, runs, began, stopped := newShop(t, serve), atomic.Int64{}, make(chan struct{}), make(chan struct{})
			s.pay = func(ctx context.Context, _ *orders.Order) (*orders.Receipt, error) {
				if runs.Add(1) > 1 {
					return &orders.Receipt{}, nil
				}
				close(began)
				<-ctx.Done()
				defer close(stopped)
				return nil, ctx.Err()
			}
			var opts []once.Option
			if atMostOnce {
				opts = append(opts, once.AtMostOnce())
			}
			s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(opts...), grpcmw.AnyCaller(), grpcmw.KeepIf(func(grpcmw.Kept) bool { return true }))))
			ctx, leave := context.WithCancel(t.Context())
			go func() { <-began; leave() }()
			ask(ctx, s.client.Pay, &orders.Order{Id: "5"}, key, "k")
			<-stopped
			var r reply
			eventually(t, "it is settled", func() bool {
				r = s.call("5", key, "k")
				return status.Code(r.err) != codes.Aborted
			})
			if atMostOnce {
				r.refused(t, codes.FailedPrecondition, grpcmw.ReasonIndeterminate)
			} else if r.err != nil || r.replayed() || runs.Load() != 2 {
				t.Errorf("got %v, replayed %v, after %d runs", r.err, r.replayed(), runs.Load())
			}
		}
	})

	t.Run("KeepIf replaces the default", func(t *testing.T) {
		t.Parallel()
		s, runs := newShop(t, serve), atomic.Int64{}
		s.pay = func(context.Context, *orders.Order) (*orders.Receipt, error) {
			return nil, status.Errorf(codes.Internal, "run %d", runs.Add(1))
		}
		keep := grpcmw.KeepIf(func(k grpcmw.Kept) bool { return k.Status.Code() == codes.Internal })
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller(), keep)))
		for range 2 {
			if r := s.call("5", key, "k"); status.Convert(r.err).Message() != "run 1" {
				t.Errorf("got %v", r.err)
			}
		}
	})

	t.Run("response over the limit", func(t *testing.T) {
		t.Parallel()
		s, runs := newShop(t, serve), atomic.Int64{}
		s.pay = func(context.Context, *orders.Order) (*orders.Receipt, error) {
			runs.Add(1)
			return &orders.Receipt{Text: "large", Blob: make([]byte, 1000)}, nil
		}
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller(), grpcmw.AnswerLimit(1000))))
		s.call("5", key, "k").is(t, "large")
		for range 2 {
			r := s.call("5", key, "k")
			r.refused(t, codes.FailedPrecondition, grpcmw.ReasonUnreplayable)
			if got := r.trailer.Get(pushback); len(got) != 1 || got[0] != "-1" {
				t.Errorf("the trailer is %v", got)
			}
		}
		if runs.Load() != 1 {
			t.Errorf("%d runs", runs.Load())
		}
	})

	t.Run("handler times out", func(t *testing.T) { // hazard 59
		t.Parallel()
		for strict, reason := range map[bool]string{false: "", true: grpcmw.ReasonIndeterminate} {
			for _, failure := range []error{status.Error(codes.DeadlineExceeded, "the bank"), context.DeadlineExceeded, fmt.Errorf("bank: %w", context.Canceled)} {
				s, runs := newShop(t, serve), atomic.Int64{}
				s.pay = func(ctx context.Context, _ *orders.Order) (*orders.Receipt, error) {
					if attempt, _ := once.AttemptFromContext(ctx); int64(attempt) != runs.Add(1) {
						t.Errorf("attempt %d is run %d", attempt, runs.Load())
					}
					if runs.Load() == 1 {
						return nil, failure
					}
					return &orders.Receipt{Text: "second"}, nil
				}
				var opts []once.Option
				if strict {
					opts = append(opts, once.AtMostOnce())
				}
				s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(opts...), grpcmw.AnyCaller())))
				if r := s.call("5", key, "k"); r.err == nil || len(r.trailer.Get(pushback)) != 0 || status.Convert(r.err).Message() == "" {
					t.Errorf("got %v", r)
				}
				if r := s.call("5", key, "k"); strict {
					r.refused(t, codes.FailedPrecondition, reason)
				} else {
					r.is(t, "second")
				}
			}
		}
	})

	t.Run("panic", func(t *testing.T) { // hazard 50
		t.Parallel()
		for _, strict := range []bool{false, true} {
			s, runs := newShop(t, serve), atomic.Int64{}
			s.pay = func(context.Context, *orders.Order) (*orders.Receipt, error) {
				if runs.Add(1) == 1 {
					panic("card reader on fire")
				}
				return &orders.Receipt{Text: "second"}, nil
			}
			var opts []once.Option
			if strict {
				opts = append(opts, once.AtMostOnce())
			}
			s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(opts...), grpcmw.AnyCaller())), recovering)
			if r := s.call("5", key, "k"); status.Code(r.err) != codes.Internal {
				t.Errorf("got %v", r.err)
			}
			if r := s.call("5", key, "k"); strict {
				r.refused(t, codes.FailedPrecondition, grpcmw.ReasonIndeterminate)
			} else {
				r.is(t, "second")
			}
		}
	})

	t.Run("detached handler, client leaves", func(t *testing.T) {
		t.Parallel()
		s, inside, finish := newShop(t, serve), make(chan struct{}, 2), make(chan struct{})
		s.pay = func(ctx context.Context, _ *orders.Order) (*orders.Receipt, error) {
			inside <- struct{}{}
			<-finish
			if md, _ := metadata.FromIncomingContext(ctx); ctx.Err() != nil || len(md.Get(key)) != 1 {
				t.Errorf("the context is %v, with %v", ctx.Err(), md)
			}
			return &orders.Receipt{Text: "done"}, nil
		}
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.runs(), grpcmw.AnyCaller(), grpcmw.Detached())))
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { gone <- ask(ctx, s.client.Pay, &orders.Order{Id: "5"}, key, "k").err }()
		within(t, "the handler runs", inside)
		leave()
		within(t, "the client has left", gone)
		s.call("5", key, "k").refused(t, codes.Aborted, grpcmw.ReasonInProgress)
		close(finish)
		eventually(t, "the answer is there", func() bool { return s.call("5", key, "k").err == nil })
		if s.call("5", key, "k").is(t, "done"); len(inside) != 0 {
			t.Error("it ran again")
		}
	})
}
