package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/grpcmw"
)

func attemptOf(ctx context.Context, _ *Order) (*Receipt, error) {
	n, _ := once.AttemptFromContext(ctx)
	return &Receipt{Text: fmt.Sprint("attempt ", n)}, nil
}

// TestRefusedInside checks an outer Idempotent with inner rules that refuse calls, on
// Redis (hazard 59).
func TestRefusedInside(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for _, strict := range []bool{false, true} {
		var opts []once.Option
		if strict {
			opts = append(opts, once.AtMostOnce())
		}
		run := func(name string, f func(t *testing.T, s *shop, id string)) {
			t.Run(fmt.Sprintf("%s %d options", name, len(opts)), func(t *testing.T) {
				t.Parallel()
				f(t, newReplica(t, server.Addr), strings.ReplaceAll(strings.ReplaceAll(fmt.Sprint(name, strict), " ", "-"), ",", ""))
			})
		}
		open := func(s *shop, inside ...grpcmw.Rule) {
			outside := grpcmw.Idempotent(s.Runs(opts...), grpcmw.AnyCaller())
			s.open(on(Orders_Pay_FullMethodName, append([]grpcmw.Rule{outside}, inside...)...))
		}

		run("attempt 1 after three busy locks", func(t *testing.T, s *shop, id string) {
			s.OnPay = attemptOf
			open(s, s.Lock())
			release := s.Hold(core.Key("order", id))
			for range 3 {
				s.Call(id, key, id).Refused(t, codes.Aborted, grpcmw.ReasonBusy)
			}
			release()
			for _, replayed := range []bool{false, true} {
				r := s.Call(id, key, id)
				if r.Is(t, "attempt 1"); r.Replayed() != replayed {
					t.Errorf("replayed is %v", r.Replayed())
				}
			}
		})

		run("store down inside", func(t *testing.T, s *shop, id string) {
			s.OnPay = attemptOf
			down := &stub{Store: memstore.New()}
			locks, err := core.New(down)
			if err != nil {
				t.Fatal(err)
			}
			open(s, s.Lock(), grpcmw.Lock(locks, "other", grpcmw.Field("id")))
			unavailable := core.ErrUnavailable
			down.AcquireFails.Store(&unavailable)
			for range 3 {
				s.Call(id, key, id).Refused(t, codes.Unavailable, grpcmw.ReasonUnavailable)
			}
			down.AcquireFails.Store(nil)
			s.Call(id, key, id).Is(t, "attempt 1")
		})

		run("key missing inside", func(t *testing.T, s *shop, id string) {
			s.OnPay = attemptOf
			open(s, grpcmw.Lock(s.Locker, "tenant", grpcmw.Metadata("tenant")))
			for range 3 {
				if r := s.Call(id, key, id); r.Replayed() {
					t.Error("the refusal was kept")
				} else {
					r.Refused(t, codes.InvalidArgument, grpcmw.ReasonKeyInvalid)
				}
			}
			s.Call(id, key, id, "tenant", "9").Is(t, "attempt 1")
		})

		run("KeyFunc fails inside", func(t *testing.T, s *shop, id string) {
			s.OnPay = attemptOf
			var there atomic.Bool
			open(s, grpcmw.Lock(s.Locker, "account", func(context.Context, string, any) (string, error) {
				if !there.Load() {
					return "", status.Error(codes.NotFound, "no such account yet")
				}
				return "9", nil
			}))
			for range 3 {
				if r := s.Call(id, key, id); status.Code(r.Err) != codes.NotFound || r.Replayed() {
					t.Errorf("got %v, %v", r.Err, r.Trailer)
				}
			}
			there.Store(true)
			s.Call(id, key, id).Is(t, "attempt 1")
		})

		run("Idempotent inside in progress", func(t *testing.T, s *shop, id string) {
			began, finish, o := make(chan struct{}), make(chan struct{}), s.Runs(opts...)
			over := make(chan error)
			go func() {
				_, err := o.Do(context.Background(), once.Call{Name: "grpc", Scope: "inside", Key: id}, func(context.Context) (once.Answer, error) {
					close(began)
					<-finish
					return once.Answer{}, once.Withdraw(errors.New("not begun"))
				})
				over <- err
			}()
			within(t, "it is in progress", began)
			attempts := make(chan int, 4)
			look := func(ctx context.Context, _ string, _ any) bool {
				n, _ := once.AttemptFromContext(ctx)
				attempts <- n
				return false
			}
			open(s, grpcmw.Idempotent(o, func(context.Context, string, any) (string, error) { return "inside", nil }, grpcmw.Skip(look)))
			for range 3 {
				s.Call(id, key, id).Refused(t, codes.Aborted, grpcmw.ReasonInProgress)
			}
			close(finish)
			_ = within(t, "it is over", over)
			s.Call(id, key, id).Is(t, "no lease")
			for range 4 {
				if n := within(t, "it was asked", attempts); n != 1 {
					t.Errorf("attempt %d", n)
				}
			}
		})

		run("Lock of an inner interceptor", func(t *testing.T, s *shop, id string) {
			s.OnPay = attemptOf
			outside := grpcmw.Idempotent(s.Runs(opts...), grpcmw.AnyCaller())
			s.open(on(Orders_Pay_FullMethodName, s.Lock()), grpc.ChainUnaryInterceptor(
				grpcmw.UnaryServerInterceptor(on(Orders_Pay_FullMethodName, outside)),
				func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
					resp, err := handler(ctx, req)
					if err != nil {
						err = fmt.Errorf("in between: %w", err)
					}
					return resp, err
				}))
			release := s.Hold(core.Key("order", id))
			for range 3 {
				s.Call(id, key, id).Refused(t, codes.Aborted, grpcmw.ReasonBusy)
			}
			release()
			s.Call(id, key, id).Is(t, "attempt 1")
		})

		run("KeyFunc of an inner interceptor", func(t *testing.T, s *shop, id string) {
			s.OnPay = attemptOf
			var there atomic.Bool
			account := grpcmw.Lock(s.Locker, "account", func(context.Context, string, any) (string, error) {
				if !there.Load() {
					return "", status.Error(codes.NotFound, "no such account yet")
				}
				return "9", nil
			})
			there.Store(true) // Check calls the KeyFunc too
			s.open(on(Orders_Pay_FullMethodName, account), grpc.ChainUnaryInterceptor(
				grpcmw.UnaryServerInterceptor(on(Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(opts...), grpcmw.AnyCaller())))))
			there.Store(false)
			for range 3 {
				if r := s.Call(id, key, id); status.Code(r.Err) != codes.NotFound || r.Replayed() {
					t.Errorf("got %v, %v", r.Err, r.Trailer)
				}
			}
			there.Store(true)
			s.Call(id, key, id).Is(t, "attempt 1")
		})

		// An interceptor asks for the attempt, and then an inner Lock refuses. The next
		// call has the next attempt.
		run("attempt asked before a refusal", func(t *testing.T, s *shop, id string) {
			s.OnPay = attemptOf
			outside := grpcmw.Idempotent(s.Runs(opts...), grpcmw.AnyCaller())
			s.open(on(Orders_Pay_FullMethodName, s.Lock()), grpc.ChainUnaryInterceptor(
				grpcmw.UnaryServerInterceptor(on(Orders_Pay_FullMethodName, outside)),
				func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
					if n, _ := once.AttemptFromContext(ctx); n == 0 {
						t.Error("there is no attempt")
					}
					return handler(ctx, req)
				}))
			release := s.Hold(core.Key("order", id))
			s.Call(id, key, id).Refused(t, codes.Aborted, grpcmw.ReasonBusy)
			release()
			s.Call(id, key, id).Is(t, "attempt 2")
		})

		run("busy lock of the handler", func(t *testing.T, s *shop, id string) {
			attempts := make(chan int, 4)
			s.OnPay = func(ctx context.Context, o *Order) (*Receipt, error) {
				n, _ := once.AttemptFromContext(ctx)
				attempts <- n
				err := s.Locker.Do(ctx, core.Key("hand", o.GetId()), func(context.Context) error { return nil }, core.Wait(0))
				if errors.Is(err, core.ErrBusy) {
					err = status.Error(codes.Aborted, err.Error())
				}
				return &Receipt{}, err
			}
			open(s, s.Lock())
			release := s.Hold(core.Key("hand", id))
			for range 2 {
				if r := s.Call(id, key, id); status.Code(r.Err) != codes.Aborted {
					t.Errorf("got %v", r.Err)
				}
			}
			release()
			s.Call(id, key, id).Is(t, "")
			for want := 1; want <= 3; want++ {
				if n := within(t, "it ran", attempts); n != want {
					t.Errorf("attempt %d, want %d", n, want)
				}
			}
		})
	}
}
