package grpcmw_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/grpcmw"
)

// TestDetachedFromTheBeginning checks calls that are canceled at any moment. If the
// handler runs, its context is not canceled. Otherwise the call can be made again.
func TestDetachedFromTheBeginning(t *testing.T) {
	t.Parallel()
	s, runs := newShop(t), atomic.Int32{}
	rule := grpcmw.Idempotent(s.Runs(once.AtMostOnce()), grpcmw.AnyCaller(), grpcmw.Detached())
	intercept := grpcmw.UnaryServerInterceptor(on(Orders_Pay_FullMethodName, rule))
	info := &grpc.UnaryServerInfo{FullMethod: Orders_Pay_FullMethodName}
	handler := func(ctx context.Context, _ any) (any, error) {
		runs.Add(1)
		if n, _ := once.AttemptFromContext(ctx); n != 1 {
			t.Errorf("attempt %d of a call that did not run before", n)
		}
		for range 5 {
			if err := ctx.Err(); err != nil {
				t.Errorf("the handler's context is done: %v", err)
			}
			runtime.Gosched()
		}
		return &Receipt{}, nil
	}
	calls := tally.Trials(3000)
	for i := range calls {
		md := metadata.Pairs(key, fmt.Sprint("k", i))
		ctx := grpc.NewContextWithServerTransportStream(metadata.NewIncomingContext(t.Context(), md), transport{})
		first, end := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			for range rand.N(60) {
				runtime.Gosched()
			}
			end()
			close(ended)
		}()
		before := runs.Load()
		if _, err := intercept(first, &Order{Id: "5"}, info, handler); runs.Load() == before && status.Code(err) != codes.Canceled {
			t.Errorf("of a call that did not run: %v", err)
		}
		<-ended
		if _, err := intercept(ctx, &Order{Id: "5"}, info, handler); err != nil {
			t.Fatal(err)
		}
	}
	if int(runs.Load()) != calls {
		t.Errorf("%d runs, want %d", runs.Load(), calls)
	}
}
