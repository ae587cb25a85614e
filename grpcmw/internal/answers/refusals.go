package answers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/internal/orders"
)

// Refusals has the cases of calls that may not run.
func Refusals(t *testing.T, serve Serve) {
	t.Run("busy lock is ABORTED", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, serve)
		s.pay = mustNotRun(t)
		s.open(on(orders.Orders_Pay_FullMethodName, s.lock()))
		for hint, most := range map[time.Duration]time.Duration{
			0: time.Second, time.Nanosecond: 4 * time.Millisecond, 300 * time.Millisecond: 300 * time.Millisecond, time.Hour: time.Second,
		} {
			s.storeFails(&core.BusyError{RetryAfter: hint})
			seen := map[string]bool{}
			for range 20 {
				r := s.call("secret-5")
				info := r.refused(t, codes.Aborted, grpcmw.ReasonBusy)
				_, pause := refusal(t, r.err, codes.Aborted, grpcmw.ReasonBusy)
				if info.GetMetadata()["lock"] != "order" || info.GetMetadata()["method"] != orders.Orders_Pay_FullMethodName {
					t.Errorf("got %v", info)
				}
				values := r.trailer.Get(pushback)
				if len(values) != 1 {
					t.Fatalf("the trailer is %v", r.trailer)
				}
				ms, err := strconv.ParseInt(values[0], 10, 64)
				hinted := time.Duration(ms) * time.Millisecond
				if err != nil || pause < most/4 || pause > most || hinted < pause || hinted > pause+time.Millisecond {
					t.Errorf("hint %v: got the pauses %v and %q, want %v to %v", hint, pause, values[0], most/4, most)
				}
				seen[values[0]] = true
			}
			if most > 100*time.Millisecond && len(seen) < 5 {
				t.Errorf("hint %v: all got the same pause: %v", hint, seen)
			}
		}
	})

	t.Run("bad key is INVALID_ARGUMENT", func(t *testing.T) {
		t.Parallel()
		own := func(context.Context, string, any) (string, error) {
			return "", fmt.Errorf("no such shop: %w", core.ErrInvalid)
		}
		for _, c := range []struct {
			key         grpcmw.KeyFunc
			field, says string
		}{{grpcmw.Field("coupon"), "coupon", "is missing"}, {own, "", "no key that can be used"}} {
			s := newShop(t, serve)
			s.pay = mustNotRun(t)
			s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Lock(s.locker, "order", c.key)))
			r := s.call("5")
			r.refused(t, codes.InvalidArgument, grpcmw.ReasonKeyInvalid)
			if got := r.trailer.Get(pushback); len(got) != 1 || got[0] != "-1" {
				t.Errorf("the trailer is %v", got)
			}
			bad := &errdetails.BadRequest{}
			for _, d := range status.Convert(r.err).Details() {
				if b, ok := d.(*errdetails.BadRequest); ok {
					bad = b
				}
			}
			if v := bad.GetFieldViolations(); len(v) != 1 || v[0].GetField() != c.field || !strings.Contains(v[0].GetDescription(), c.says) {
				t.Errorf("got %v", bad)
			}
			if s.store.attempts.Load() != 0 {
				t.Error("the store was asked")
			}
		}
	})

	t.Run("store down is UNAVAILABLE", func(t *testing.T) {
		t.Parallel()
		s, seen := newShop(t, serve), &reasons{}
		s.pay = mustNotRun(t)
		s.open(on(orders.Orders_Pay_FullMethodName, s.lock()), seen.watch)
		down := fmt.Errorf("dial 10.0.0.7: %w", core.ErrUnavailable)
		s.storeFails(down)
		r := s.call("secret-42")
		r.refused(t, codes.Unavailable, grpcmw.ReasonUnavailable)
		if len(r.trailer.Get(pushback)) != 1 || strings.Contains(r.err.Error(), "10.0.0.7") {
			t.Errorf("got %v, %v", r.err, r.trailer)
		}
		if !errors.Is(seen.last(), down) {
			t.Errorf("an outer interceptor sees %v", seen.last())
		}
		if err := s.locker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.call("5").refused(t, codes.Unavailable, grpcmw.ReasonUnavailable)
		if !errors.Is(seen.last(), core.ErrClosed) {
			t.Errorf("an outer interceptor sees %v", seen.last())
		}
	})

	t.Run("unsupported lock is INTERNAL", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, serve)
		s.pay = mustNotRun(t)
		s.open(on(orders.Orders_Pay_FullMethodName, s.lock(grpcmw.Acquire(core.Shared()))))
		s.storeFails(core.ErrUnsupported)
		r := s.call("5")
		if r.refused(t, codes.Internal, grpcmw.ReasonFailed); len(r.trailer.Get(pushback)) != 0 {
			t.Errorf("the trailer is %v", r.trailer)
		}
	})

	t.Run("call times out while waiting", func(t *testing.T) {
		t.Parallel()
		s, seen := newShop(t, serve), &reasons{}
		s.pay = mustNotRun(t)
		s.open(on(orders.Orders_Pay_FullMethodName, s.lock(grpcmw.Acquire(core.Wait(time.Hour)))), seen.watch)
		s.hold("order:5")
		// On a busy machine a deadline can pass before the call is at the server.
		for limit := 50 * time.Millisecond; seen.last() == nil && limit < time.Minute; limit *= 2 {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if r := ask(ctx, s.client.Pay, &orders.Order{Id: "5"}); status.Code(r.err) != codes.DeadlineExceeded {
				t.Errorf("the client got %v", r.err)
			}
			for end := time.Now().Add(limit); seen.last() == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
			}
		}
		code := codes.DeadlineExceeded
		if status.Code(seen.last()) == codes.Canceled { // the client's cancellation can come before the server's own timer
			code = codes.Canceled
		}
		refusal(t, seen.last(), code, grpcmw.ReasonTimeout)
	})

	t.Run("client leaves while waiting", func(t *testing.T) {
		t.Parallel()
		s, seen := newShop(t, serve), &reasons{}
		s.pay = mustNotRun(t)
		s.open(on(orders.Orders_Pay_FullMethodName, s.lock(grpcmw.Acquire(core.Wait(time.Hour)))), seen.watch)
		s.hold("order:5")
		before := s.store.attempts.Load()
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		go func() {
			eventually(t, "the call waits", func() bool { return s.store.attempts.Load() > before+1 })
			leave()
		}()
		if r := ask(ctx, s.client.Pay, &orders.Order{Id: "5"}); status.Code(r.err) != codes.Canceled {
			t.Errorf("the client got %v", r.err)
		}
		eventually(t, "the call is done", func() bool { return seen.last() != nil })
		refusal(t, seen.last(), codes.Canceled, grpcmw.ReasonTimeout)
	})

	t.Run("outer lease lost while waiting", func(t *testing.T) {
		t.Parallel()
		s, gone := newShop(t, serve), core.ErrLost
		s.store.extend.Store(&gone)
		s.pay = mustNotRun(t)
		s.open(on(orders.Orders_Pay_FullMethodName,
			grpcmw.Lock(s.locker, "tenant", grpcmw.Field("id"), grpcmw.Acquire(core.TTL(300*time.Millisecond))),
			s.lock(grpcmw.Acquire(core.Wait(time.Hour)))))
		s.hold("order:5")
		s.call("5").refused(t, codes.Unavailable, grpcmw.ReasonUnavailable)
	})

	t.Run("error of a KeyFunc", func(t *testing.T) {
		t.Parallel()
		s, seen := newShop(t, serve), &reasons{}
		s.pay = mustNotRun(t)
		session := errors.New("no session of alice@example.com")
		custom := func(_ context.Context, _ string, req any) (string, error) {
			switch req.(*orders.Order).GetId() {
			case "bad":
				return "", fmt.Errorf("order of alice@example.com: %w", core.ErrInvalid)
			case "who":
				return "", status.Error(codes.Unauthenticated, "log in first")
			case "":
				return "", nil
			}
			return "", session
		}
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Lock(s.locker, "order", custom)), seen.watch)
		for id, c := range map[string]struct {
			code   codes.Code
			reason string
			is     error
		}{
			"bad": {codes.InvalidArgument, grpcmw.ReasonKeyInvalid, core.ErrInvalid},
			"":    {codes.InvalidArgument, grpcmw.ReasonKeyInvalid, core.ErrInvalid},
			"x":   {codes.Internal, grpcmw.ReasonFailed, session},
		} {
			r := s.call(id)
			r.refused(t, c.code, c.reason)
			if strings.Contains(r.err.Error(), "alice") || !errors.Is(seen.last(), c.is) {
				t.Errorf("%q: the client got %v, an interceptor %v", id, r.err, seen.last())
			}
		}
		if r := s.call("who"); status.Code(r.err) != codes.Unauthenticated || status.Convert(r.err).Message() != "log in first" || len(status.Convert(r.err).Details()) != 0 {
			t.Errorf("got %v", r.err)
		}
	})

	t.Run("wrong path is INTERNAL", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, serve)
		s.pay = mustNotRun(t)
		s.open(on(orders.Orders_Pay_FullMethodName, grpcmw.Lock(s.locker, "order", grpcmw.Field("idd"))))
		r := s.call("5")
		r.refused(t, codes.Internal, grpcmw.ReasonFailed)
		if !strings.Contains(r.err.Error(), "idd is no field of lockkit.grpcmw.test.Order") {
			t.Errorf("got %v", r.err)
		}
	})

	t.Run("no response contains the key", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, serve)
		s.open(on(orders.Orders_Pay_FullMethodName, s.lock()))
		s.hold("order:secret-77")
		for _, id := range []string{"secret-77", "secret-77\x00", "secret-77" + strings.Repeat("x", 600)} {
			if r := s.call(id); r.err == nil || strings.Contains(fmt.Sprint(status.Convert(r.err).Proto(), r.header, r.trailer), "secret") {
				t.Errorf("got %v", r.err)
			}
		}
	})
}
