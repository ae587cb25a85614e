package grpcmw_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/grpcmw"
)

func TestCallName(t *testing.T) {
	t.Parallel()

	t.Run("names in events and statuses", func(t *testing.T) {
		t.Parallel()
		var mu sync.Mutex
		events := make(map[string]int)
		s := newShop(t, core.WithObserver(observer(func(e core.Event) {
			mu.Lock()
			defer mu.Unlock()
			events[e.Name]++
		})))
		broken := func(context.Context, *Order) (*Receipt, error) { return nil, once.ErrIndeterminate }
		s.OnPay, s.OnRefund = broken, broken
		o, outside := s.Runs(once.AtMostOnce()), reasons{}
		clear(events) // once.New has checked whether the store has records
		s.open(grpcmw.Rules{
			Orders_Pay_FullMethodName:    {grpcmw.Idempotent(o, grpcmw.AnyCaller(), grpcmw.CallName("checkout"))},
			Orders_Refund_FullMethodName: {grpcmw.Idempotent(o, grpcmw.AnyCaller())},
		}, watched(&outside))
		for name, method := range map[string]unary{"checkout": s.Client.Pay, "grpc": s.Client.Refund} {
			for _, call := range []struct {
				md     []string
				code   codes.Code
				reason string
			}{
				{nil, codes.InvalidArgument, grpcmw.ReasonKeyInvalid},
				{[]string{key, name}, codes.Unknown, ""},
				{[]string{key, name}, codes.FailedPrecondition, grpcmw.ReasonIndeterminate},
			} {
				r := ask(t.Context(), method, &Order{Id: "5"}, call.md...)
				if call.reason == "" {
					continue
				}
				if info := r.Refused(t, call.code, call.reason); info.GetMetadata()["lock"] != name {
					t.Errorf("%s: the answer has %v", name, info.GetMetadata())
				}
			}
			if reason := errors.Unwrap(outside.Last()); reason == nil || !strings.Contains(reason.Error(), "once: do "+strconv.Quote(name)+": ") {
				t.Errorf("%s: the reason is %v", name, reason)
			}
			mu.Lock()
			if events[name] == 0 {
				t.Errorf("no event has the name %s: %v", name, events)
			}
			delete(events, name)
			if len(events) != 0 {
				t.Errorf("%s: there are events of %v", name, events)
			}
			mu.Unlock()
		}
	})

	t.Run("responses under a new name", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.OnRefund = mustNotRun(t)
		before, o := grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller()), s.Runs()
		s.open(on(Orders_Pay_FullMethodName, before))
		s.Call("5", key, "k").Is(t, "no lease")
		rule := grpcmw.Idempotent(o, grpcmw.AnyCaller(), grpcmw.CallName("orders"))
		s.open(grpcmw.Rules{Orders_Pay_FullMethodName: {rule}, Orders_Refund_FullMethodName: {rule}})
		if r := s.Call("5", key, "k"); r.Err != nil || !r.Replayed() {
			t.Errorf("under a new name: got %v, %v", r.Err, r.Trailer)
		}
		ask(t.Context(), s.Client.Refund, &Order{Id: "5"}, key, "k").Refused(t, codes.FailedPrecondition, grpcmw.ReasonMismatch)
	})

	t.Run("bad name or Lock panics", func(t *testing.T) {
		t.Parallel()
		panics(t, "CallName", func() { grpcmw.CallName("") })
		panics(t, "CallName", func() { grpcmw.CallName("a b") })
		panics(t, "CallName", func() { grpcmw.CallName(strings.Repeat("n", 65)) })
		panics(t, "CallName", func() { newShop(t).Lock(grpcmw.CallName("checkout")) })
		grpcmw.CallName(strings.Repeat("n", 64))
	})
}

type observer func(core.Event)

func (o observer) Observe(_ context.Context, e core.Event) { o(e) }
