package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/grpcmw"
)

// TestIdempotent_BusyAfterATry checks a run whose first try has reached the handler. The
// run counts as an attempt, even if the next try of an interceptor in between finds the
// lock busy (hazard 59).
func TestIdempotent_BusyAfterATry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		busy    int   // the first try that finds the lock busy
		first   error // of the handler in the tries before
		attempt int   // of the next call; 0: it is not run
	}{
		"handler failed":   {1, status.Error(codes.Unavailable, "no connection"), 2},
		"progress unknown": {1, status.Error(codes.DeadlineExceeded, "bank"), 0},
		"said unknown":     {1, fmt.Errorf("%w: %w", once.ErrIndeterminate, status.Error(codes.Unavailable, "bank")), 0},
		"handler panicked": {1, errPanic, 0},
		"first try busy":   {0, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locks, err := core.New(memstore.New())
			if err != nil {
				t.Fatal(err)
			}
			runs, err := once.New(locks, once.AtMostOnce())
			if err != nil {
				t.Fatal(err)
			}
			info := &grpc.UnaryServerInfo{FullMethod: Orders_Pay_FullMethodName}
			outer := grpcmw.UnaryServerInterceptor(on(Orders_Pay_FullMethodName, grpcmw.Idempotent(runs, grpcmw.AnyCaller())))
			around := grpcmw.UnaryServerInterceptor(on(Orders_Pay_FullMethodName, grpcmw.Lock(locks, "tenant", grpcmw.Field("id"))))
			inner := grpcmw.UnaryServerInterceptor(on(Orders_Pay_FullMethodName, grpcmw.Lock(locks, "order", grpcmw.Field("id"))))
			ctx := grpc.NewContextWithServerTransportStream(metadata.NewIncomingContext(t.Context(), metadata.Pairs(key, "k")), transport{})
			var taken *core.Lease
			call := func(tries int, handler grpc.UnaryHandler) error {
				_, err := outer(ctx, &Order{Id: "42"}, info, func(ctx context.Context, req any) (any, error) {
					return around(ctx, req, info, func(ctx context.Context, req any) (reply any, err error) {
						for try := range tries {
							if try == c.busy {
								if taken, err = locks.Acquire(t.Context(), core.Key("order", "42"), core.Wait(0)); err != nil {
									t.Error(err)
								}
							}
							reply, err = recovering(ctx, req, info, inner, handler)
						}
						return reply, err
					})
				})
				return err
			}
			err = call(2, func(context.Context, any) (any, error) {
				if c.first == errPanic {
					panic(c.first)
				}
				return nil, c.first
			})
			if status.Code(err) != codes.Aborted {
				t.Errorf("got %v, want %v", err, codes.Aborted)
			}
			if err := taken.Release(t.Context()); err != nil {
				t.Error(err)
			}
			attempt := 0
			c.busy = -1
			err = call(1, func(ctx context.Context, _ any) (any, error) {
				attempt, _ = once.AttemptFromContext(ctx)
				return &Receipt{}, nil
			})
			if attempt != c.attempt || (err != nil) != (c.attempt == 0) {
				t.Errorf("again: got attempt %d and %v, want attempt %d", attempt, err, c.attempt)
			}
		})
	}
}

// TestIdempotent_LeftTry checks a run whose first try is left by an interceptor in
// between while its handler is running. The next try finds the lock busy.
func TestIdempotent_LeftTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks, err := core.New(memstore.New())
		if err != nil {
			t.Fatal(err)
		}
		runs, err := once.New(locks, once.AtMostOnce())
		if err != nil {
			t.Fatal(err)
		}
		info := &grpc.UnaryServerInfo{FullMethod: Orders_Pay_FullMethodName}
		outer := grpcmw.UnaryServerInterceptor(on(Orders_Pay_FullMethodName, grpcmw.Idempotent(runs, grpcmw.AnyCaller())))
		inner := grpcmw.UnaryServerInterceptor(on(Orders_Pay_FullMethodName, grpcmw.Lock(locks, "order", grpcmw.Field("id"))))
		ctx := grpc.NewContextWithServerTransportStream(metadata.NewIncomingContext(t.Context(), metadata.Pairs(key, "k")), transport{})
		finish := make(chan struct{})
		_, err = outer(ctx, &Order{Id: "42"}, info, func(ctx context.Context, req any) (any, error) {
			handler := func(context.Context, any) (any, error) {
				<-finish
				return &Receipt{}, nil
			}
			go func() { _, _ = inner(ctx, req, info, handler) }()
			synctest.Wait()
			return inner(ctx, req, info, handler)
		})
		if status.Code(err) != codes.Aborted {
			t.Errorf("got %v, want %v", err, codes.Aborted)
		}
		_, err = outer(ctx, &Order{Id: "42"}, info, func(context.Context, any) (any, error) {
			t.Error("the handler ran again")
			return &Receipt{}, nil
		})
		if err == nil {
			t.Error("again: got a reply, want a refusal")
		}
		close(finish)
		synctest.Wait()
		if err := locks.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

var errPanic = errors.New("panic")

// recovering calls inner, and returns INTERNAL if it panics.
func recovering(ctx context.Context, req any, info *grpc.UnaryServerInfo, inner grpc.UnaryServerInterceptor, next grpc.UnaryHandler) (reply any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Error(codes.Internal, "panic")
		}
	}()
	return inner(ctx, req, info, next)
}
