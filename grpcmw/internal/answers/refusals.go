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

// Refusals tests refused calls.
func Refusals(t *testing.T, serve Serve) {
	t.Run("busy lock is ABORTED", func(t *testing.T) {
		t.Parallel()
		s := NewShop(t, serve)
		s.OnPay = MustNotRun(t)
		s.Open(On(orders.Orders_Pay_FullMethodName, s.Lock()))
		for hint, most := range map[time.Duration]time.Duration{
			0: time.Second, time.Nanosecond: 4 * time.Millisecond, 300 * time.Millisecond: 300 * time.Millisecond, time.Hour: time.Second,
		} {
			s.StoreFails(&core.BusyError{RetryAfter: hint})
			seen := map[string]bool{}
			for range 20 {
				r := s.Call("secret-5")
				info := r.Refused(t, codes.Aborted, grpcmw.ReasonBusy)
				_, pause := RefusalOf(t, r.Err, codes.Aborted, grpcmw.ReasonBusy)
				if info.GetMetadata()["lock"] != "order" || info.GetMetadata()["method"] != orders.Orders_Pay_FullMethodName {
					t.Errorf("got %v", info)
				}
				values := r.Trailer.Get(Pushback)
				if len(values) != 1 {
					t.Fatalf("the trailer is %v", r.Trailer)
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

	t.Run("bad key is invalid", func(t *testing.T) {
		t.Parallel()
		own := func(context.Context, string, any) (string, error) {
			return "", fmt.Errorf("no such shop: %w", core.ErrInvalid)
		}
		for _, c := range []struct {
			key         grpcmw.KeyFunc
			field, says string
		}{{grpcmw.Field("coupon"), "coupon", "is missing"}, {own, "", "no key that can be used"}} {
			s := NewShop(t, serve)
			s.OnPay = MustNotRun(t)
			s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Lock(s.Locker, "order", c.key)))
			r := s.Call("5")
			r.Refused(t, codes.InvalidArgument, grpcmw.ReasonKeyInvalid)
			if got := r.Trailer.Get(Pushback); len(got) != 1 || got[0] != "-1" {
				t.Errorf("the trailer is %v", got)
			}
			bad := &errdetails.BadRequest{}
			for _, d := range status.Convert(r.Err).Details() {
				if b, ok := d.(*errdetails.BadRequest); ok {
					bad = b
				}
			}
			if v := bad.GetFieldViolations(); len(v) != 1 || v[0].GetField() != c.field || !strings.Contains(v[0].GetDescription(), c.says) {
				t.Errorf("got %v", bad)
			}
			if s.Store.Attempts.Load() != 0 {
				t.Error("the store was asked")
			}
		}
	})

	t.Run("store down is UNAVAILABLE", func(t *testing.T) {
		t.Parallel()
		s, seen := NewShop(t, serve), &Reasons{}
		s.OnPay = MustNotRun(t)
		s.Open(On(orders.Orders_Pay_FullMethodName, s.Lock()), seen.Watch)
		down := fmt.Errorf("dial 10.0.0.7: %w", core.ErrUnavailable)
		s.StoreFails(down)
		r := s.Call("secret-42")
		r.Refused(t, codes.Unavailable, grpcmw.ReasonUnavailable)
		if len(r.Trailer.Get(Pushback)) != 1 || strings.Contains(r.Err.Error(), "10.0.0.7") {
			t.Errorf("got %v, %v", r.Err, r.Trailer)
		}
		if !errors.Is(seen.Last(), down) {
			t.Errorf("an outer interceptor sees %v", seen.Last())
		}
		if err := s.Locker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Call("5").Refused(t, codes.Unavailable, grpcmw.ReasonUnavailable)
		if !errors.Is(seen.Last(), core.ErrClosed) {
			t.Errorf("an outer interceptor sees %v", seen.Last())
		}
	})

	t.Run("unsupported lock is INTERNAL", func(t *testing.T) {
		t.Parallel()
		s := NewShop(t, serve)
		s.OnPay = MustNotRun(t)
		s.Open(On(orders.Orders_Pay_FullMethodName, s.Lock(grpcmw.Acquire(core.Shared()))))
		s.StoreFails(core.ErrUnsupported)
		r := s.Call("5")
		if r.Refused(t, codes.Internal, grpcmw.ReasonFailed); len(r.Trailer.Get(Pushback)) != 0 {
			t.Errorf("the trailer is %v", r.Trailer)
		}
	})

	t.Run("call times out while waiting", func(t *testing.T) {
		t.Parallel()
		s, seen := NewShop(t, serve), &Reasons{}
		s.OnPay = MustNotRun(t)
		s.Open(On(orders.Orders_Pay_FullMethodName, s.Lock(grpcmw.Acquire(core.Wait(time.Hour)))), seen.Watch)
		s.Hold("order:5")
		// On a busy machine a deadline can pass before the call reaches the server.
		for limit := 50 * time.Millisecond; seen.Last() == nil && limit < time.Minute; limit *= 2 {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if r := ask(ctx, s.Client.Pay, &orders.Order{Id: "5"}); status.Code(r.Err) != codes.DeadlineExceeded {
				t.Errorf("the client got %v", r.Err)
			}
			for end := time.Now().Add(limit); seen.Last() == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
			}
		}
		code := codes.DeadlineExceeded
		// The client's cancellation can come before the server's own timer.
		if status.Code(seen.Last()) == codes.Canceled {
			code = codes.Canceled
		}
		RefusalOf(t, seen.Last(), code, grpcmw.ReasonTimeout)
	})

	t.Run("client leaves while waiting", func(t *testing.T) {
		t.Parallel()
		s, seen := NewShop(t, serve), &Reasons{}
		s.OnPay = MustNotRun(t)
		s.Open(On(orders.Orders_Pay_FullMethodName, s.Lock(grpcmw.Acquire(core.Wait(time.Hour)))), seen.Watch)
		s.Hold("order:5")
		before := s.Store.Attempts.Load()
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		go func() {
			Eventually(t, "the call waits", func() bool { return s.Store.Attempts.Load() > before+1 })
			leave()
		}()
		if r := ask(ctx, s.Client.Pay, &orders.Order{Id: "5"}); status.Code(r.Err) != codes.Canceled {
			t.Errorf("the client got %v", r.Err)
		}
		Eventually(t, "the call has returned", func() bool { return seen.Last() != nil })
		RefusalOf(t, seen.Last(), codes.Canceled, grpcmw.ReasonTimeout)
	})

	t.Run("outer lease lost while waiting", func(t *testing.T) {
		t.Parallel()
		s, gone := NewShop(t, serve), core.ErrLost
		s.Store.ExtendFails.Store(&gone)
		s.OnPay = MustNotRun(t)
		s.Open(On(orders.Orders_Pay_FullMethodName,
			grpcmw.Lock(s.Locker, "tenant", grpcmw.Field("id"), grpcmw.Acquire(core.TTL(300*time.Millisecond))),
			s.Lock(grpcmw.Acquire(core.Wait(time.Hour)))))
		s.Hold("order:5")
		s.Call("5").Refused(t, codes.Unavailable, grpcmw.ReasonUnavailable)
	})

	t.Run("error of a KeyFunc", func(t *testing.T) {
		t.Parallel()
		s, seen := NewShop(t, serve), &Reasons{}
		s.OnPay = MustNotRun(t)
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
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Lock(s.Locker, "order", custom)), seen.Watch)
		for id, c := range map[string]struct {
			code   codes.Code
			reason string
			is     error
		}{
			"bad": {codes.InvalidArgument, grpcmw.ReasonKeyInvalid, core.ErrInvalid},
			"":    {codes.InvalidArgument, grpcmw.ReasonKeyInvalid, core.ErrInvalid},
			"x":   {codes.Internal, grpcmw.ReasonFailed, session},
		} {
			r := s.Call(id)
			r.Refused(t, c.code, c.reason)
			if strings.Contains(r.Err.Error(), "alice") || !errors.Is(seen.Last(), c.is) {
				t.Errorf("%q: the client got %v, an interceptor %v", id, r.Err, seen.Last())
			}
		}
		if r := s.Call("who"); status.Code(r.Err) != codes.Unauthenticated || status.Convert(r.Err).Message() != "log in first" || len(status.Convert(r.Err).Details()) != 0 {
			t.Errorf("got %v", r.Err)
		}
	})

	t.Run("wrong path is INTERNAL", func(t *testing.T) {
		t.Parallel()
		s := NewShop(t, serve)
		s.OnPay = MustNotRun(t)
		s.Open(On(orders.Orders_Pay_FullMethodName, grpcmw.Lock(s.Locker, "order", grpcmw.Field("idd"))))
		r := s.Call("5")
		r.Refused(t, codes.Internal, grpcmw.ReasonFailed)
		if !strings.Contains(r.Err.Error(), "idd is no field of lockkit.grpcmw.test.Order") {
			t.Errorf("got %v", r.Err)
		}
	})

	t.Run("no response contains the key", func(t *testing.T) {
		t.Parallel()
		s := NewShop(t, serve)
		s.Open(On(orders.Orders_Pay_FullMethodName, s.Lock()))
		s.Hold("order:secret-77")
		for _, id := range []string{"secret-77", "secret-77\x00", "secret-77" + strings.Repeat("x", 600)} {
			if r := s.Call(id); r.Err == nil || strings.Contains(fmt.Sprint(status.Convert(r.Err).Proto(), r.Header, r.Trailer), "secret") {
				t.Errorf("got %v", r.Err)
			}
		}
	})
}
