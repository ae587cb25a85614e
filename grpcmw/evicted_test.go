package grpcmw_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/grpcmw"
)

// TestLateAnswer checks runs that continue after Locker.Close. It covers hazard 58.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for policy, opts := range map[string][]once.Option{"": nil, " with AtMostOnce": {once.AtMostOnce()}} {
		t.Run("replay of a run after Close"+policy, func(t *testing.T) {
			t.Parallel()
			first, next := newReplica(t, server.Addr), newReplica(t, server.Addr)
			for _, s := range []*shop{first, next} {
				s.OnPay = func(ctx context.Context, o *Order) (*Receipt, error) {
					end, cancel := context.WithCancel(ctx)
					cancel()
					if err := s.Locker.Close(end); err == nil {
						t.Error("it was closed while a run goes on")
					}
					return attemptOf(ctx, o)
				}
				s.open(on(Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(opts...), grpcmw.AnyCaller())))
			}
			for i, s := range []*shop{first, next} {
				r := s.Call("5", key, fmt.Sprint("late-", len(opts)))
				if r.Is(t, "attempt 1"); r.Replayed() != (i > 0) {
					t.Errorf("call %d: replayed is %v", i+1, r.Replayed())
				}
			}
		})
	}
}
