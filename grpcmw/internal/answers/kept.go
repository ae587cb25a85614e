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

// Kept tests the responses that are stored by default.
func Kept(t *testing.T, serve Serve) {
	t.Run("errors are kept", func(t *testing.T) {
		t.Parallel()
		s, runs := NewShop(t, serve), atomic.Int64{}
		s.OnPay = func(ctx context.Context, o *orders.Order) (*orders.Receipt, error) {
			attempt, _ := once.AttemptFromContext(ctx)
			st, err := status.New(codes.Code(o.GetI32()), fmt.Sprintf("run %d", attempt)).
				WithDetails(&errdetails.PreconditionFailure{Violations: []*errdetails.PreconditionFailure_Violation{{Subject: "card"}}})
			if err != nil {
				t.Error(err)
			}
			runs.Add(1)
			return nil, st.Err()
		}
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())))
		kept := []codes.Code{codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange}
		for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
			runs.Store(0)
			var first, second Reply
			for _, r := range []*Reply{&first, &second} {
				*r = ask(t.Context(), s.Client.Pay, &orders.Order{I32: int32(code)}, IdempotencyKey, code.String())
			}
			a, b := status.Convert(first.Err), status.Convert(second.Err)
			want, text := int64(2), "run 2"
			for _, k := range kept {
				if k == code {
					want, text = 1, "run 1"
				}
			}
			if a.Code() != code || b.Code() != code || runs.Load() != want || b.Message() != text || len(b.Details()) != 1 || second.Replayed() != (want == 1) {
				t.Errorf("%v: %d runs, got %v, then %v %v %v; want %d runs", code, runs.Load(), a, b, b.Details(), second.Trailer, want)
			}
			if want == 1 && (!proto.Equal(a.Proto(), b.Proto()) || len(second.Header) != 0) {
				t.Errorf("%v: got %v with %v, want %v without a header", code, b, second.Header, a)
			}
		}
	})

	t.Run("nil reply", func(t *testing.T) {
		t.Parallel()
		s, runs := NewShop(t, serve), atomic.Int64{}
		s.OnPay = func(context.Context, *orders.Order) (*orders.Receipt, error) { runs.Add(1); return nil, nil }
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())))
		for i := range 2 {
			if r := s.Call("5", IdempotencyKey, "k"); r.Err != nil || runs.Load() != 1 || r.Replayed() != (i == 1) {
				t.Errorf("got %v after %d runs, %v", r.Err, runs.Load(), r.Trailer)
			}
		}
	})

	t.Run("error with invalid UTF-8", func(t *testing.T) {
		t.Parallel()
		s := NewShop(t, serve)
		s.OnPay = func(context.Context, *orders.Order) (*orders.Receipt, error) {
			return nil, status.Error(codes.NotFound, "no \xff\xfe here")
		}
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())))
		first, second := s.Call("5", IdempotencyKey, "k"), s.Call("5", IdempotencyKey, "k")
		if a, b := status.Convert(first.Err), status.Convert(second.Err); a.Code() != codes.NotFound || a.String() != b.String() || !second.Replayed() {
			t.Errorf("got %v, then %v", a, b)
		}
	})

	t.Run("KeepIf sees errors as sent", func(t *testing.T) {
		t.Parallel()
		for want, failure := range map[codes.Code]error{
			codes.Unknown:          errors.New("ledger: out of sync"),
			codes.DeadlineExceeded: fmt.Errorf("bank: %w", context.DeadlineExceeded),
		} {
			s, runs, asked := NewShop(t, serve), atomic.Int64{}, atomic.Int64{}
			s.OnPay = func(context.Context, *orders.Order) (*orders.Receipt, error) { runs.Add(1); return nil, failure }
			s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), grpcmw.KeepIf(func(k grpcmw.Kept) bool {
				asked.Store(int64(k.Status.Code()))
				return true
			}))))
			first, second := s.Call("5", IdempotencyKey, "k"), s.Call("5", IdempotencyKey, "k")
			if a, b := status.Convert(first.Err), status.Convert(second.Err); a.Code() != want || a.String() != b.String() || !second.Replayed() {
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
			s, runs, began, stopped := NewShop(t, serve), atomic.Int64{}, make(chan struct{}), make(chan struct{})
			s.OnPay = func(ctx context.Context, _ *orders.Order) (*orders.Receipt, error) {
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
			s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(opts...), grpcmw.AnyCaller(), grpcmw.KeepIf(func(grpcmw.Kept) bool { return true }))))
			ctx, leave := context.WithCancel(t.Context())
			go func() { <-began; leave() }()
			ask(ctx, s.Client.Pay, &orders.Order{Id: "5"}, IdempotencyKey, "k")
			<-stopped
			var r Reply
			Eventually(t, "it is settled", func() bool {
				r = s.Call("5", IdempotencyKey, "k")
				return status.Code(r.Err) != codes.Aborted
			})
			if atMostOnce {
				r.Refused(t, codes.FailedPrecondition, grpcmw.ReasonIndeterminate)
			} else if r.Err != nil || r.Replayed() || runs.Load() != 2 {
				t.Errorf("got %v, replayed %v, after %d runs", r.Err, r.Replayed(), runs.Load())
			}
		}
	})

	t.Run("KeepIf replaces the default", func(t *testing.T) {
		t.Parallel()
		s, runs := NewShop(t, serve), atomic.Int64{}
		s.OnPay = func(context.Context, *orders.Order) (*orders.Receipt, error) {
			return nil, status.Errorf(codes.Internal, "run %d", runs.Add(1))
		}
		keep := grpcmw.KeepIf(func(k grpcmw.Kept) bool { return k.Status.Code() == codes.Internal })
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), keep)))
		for range 2 {
			if r := s.Call("5", IdempotencyKey, "k"); status.Convert(r.Err).Message() != "run 1" {
				t.Errorf("got %v", r.Err)
			}
		}
	})

	t.Run("response over the limit", func(t *testing.T) {
		t.Parallel()
		s, runs := NewShop(t, serve), atomic.Int64{}
		s.OnPay = func(context.Context, *orders.Order) (*orders.Receipt, error) {
			runs.Add(1)
			return &orders.Receipt{Text: "large", Blob: make([]byte, 1000)}, nil
		}
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), grpcmw.AnswerLimit(1000))))
		s.Call("5", IdempotencyKey, "k").Is(t, "large")
		for range 2 {
			r := s.Call("5", IdempotencyKey, "k")
			r.Refused(t, codes.FailedPrecondition, grpcmw.ReasonUnreplayable)
			if got := r.Trailer.Get(Pushback); len(got) != 1 || got[0] != "-1" {
				t.Errorf("the trailer is %v", got)
			}
		}
		if runs.Load() != 1 {
			t.Errorf("%d runs", runs.Load())
		}
	})

	t.Run("handler times out", func(t *testing.T) { // covers hazard 59
		t.Parallel()
		for strict, reason := range map[bool]string{false: "", true: grpcmw.ReasonIndeterminate} {
			for _, failure := range []error{status.Error(codes.DeadlineExceeded, "the bank"), context.DeadlineExceeded, fmt.Errorf("bank: %w", context.Canceled)} {
				s, runs := NewShop(t, serve), atomic.Int64{}
				s.OnPay = func(ctx context.Context, _ *orders.Order) (*orders.Receipt, error) {
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
				s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(opts...), grpcmw.AnyCaller())))
				if r := s.Call("5", IdempotencyKey, "k"); r.Err == nil || len(r.Trailer.Get(Pushback)) != 0 || status.Convert(r.Err).Message() == "" {
					t.Errorf("got %v", r)
				}
				if r := s.Call("5", IdempotencyKey, "k"); strict {
					r.Refused(t, codes.FailedPrecondition, reason)
				} else {
					r.Is(t, "second")
				}
			}
		}
	})

	t.Run("panic of the handler", func(t *testing.T) { // covers hazard 50
		t.Parallel()
		for _, strict := range []bool{false, true} {
			s, runs := NewShop(t, serve), atomic.Int64{}
			s.OnPay = func(context.Context, *orders.Order) (*orders.Receipt, error) {
				if runs.Add(1) == 1 {
					panic("card reader on fire")
				}
				return &orders.Receipt{Text: "second"}, nil
			}
			var opts []once.Option
			if strict {
				opts = append(opts, once.AtMostOnce())
			}
			s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(opts...), grpcmw.AnyCaller())), recovering)
			if r := s.Call("5", IdempotencyKey, "k"); status.Code(r.Err) != codes.Internal {
				t.Errorf("got %v", r.Err)
			}
			if r := s.Call("5", IdempotencyKey, "k"); strict {
				r.Refused(t, codes.FailedPrecondition, grpcmw.ReasonIndeterminate)
			} else {
				r.Is(t, "second")
			}
		}
	})

	t.Run("detached handler as client leaves", func(t *testing.T) {
		t.Parallel()
		s, inside, finish := NewShop(t, serve), make(chan struct{}, 2), make(chan struct{})
		s.OnPay = func(ctx context.Context, _ *orders.Order) (*orders.Receipt, error) {
			inside <- struct{}{}
			<-finish
			if md, _ := metadata.FromIncomingContext(ctx); ctx.Err() != nil || len(md.Get(IdempotencyKey)) != 1 {
				t.Errorf("the context is %v, with %v", ctx.Err(), md)
			}
			return &orders.Receipt{Text: "done"}, nil
		}
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), grpcmw.Detached())))
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { gone <- ask(ctx, s.Client.Pay, &orders.Order{Id: "5"}, IdempotencyKey, "k").Err }()
		Within(t, "the handler runs", inside)
		leave()
		Within(t, "the client has left", gone)
		s.Call("5", IdempotencyKey, "k").Refused(t, codes.Aborted, grpcmw.ReasonInProgress)
		close(finish)
		Eventually(t, "the answer is there", func() bool { return s.Call("5", IdempotencyKey, "k").Err == nil })
		if s.Call("5", IdempotencyKey, "k").Is(t, "done"); len(inside) != 0 {
			t.Error("it ran again")
		}
	})
}
