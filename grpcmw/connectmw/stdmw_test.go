package connectmw_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/grpcmw/internal/orders"
	"github.com/lockkit/lockkit/httpmw/stdmw"
)

// TestStdmw checks the statements of stdmw's documentation about handlers of connect.
func TestStdmw(t *testing.T) {
	t.Parallel()
	locks := newLocker(t)
	var runs atomic.Int32
	h := connect.NewUnaryHandler(pay, func(context.Context, *request) (*response, error) {
		runs.Add(1)
		return connect.NewResponse(&orders.Receipt{Text: "paid"}), nil
	})
	lease, err := locks.Acquire(t.Context(), core.Key("order", "5"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Release(context.Background()) }()
	locked := serve(t, stdmw.Lock(locks, "order", func(*http.Request) (string, error) { return "5", nil })(h))
	for name, opts := range clients {
		t.Run(name, func(t *testing.T) {
			onlyGRPC, gzip := strings.HasPrefix(name, "gRPC ") || name == "gRPC", strings.Contains(name, "gzip")
			for _, c := range []struct {
				opts     []stdmw.Option
				replayed bool
			}{
				{nil, !onlyGRPC && !(gzip && strings.HasPrefix(name, "gRPC-Web"))},
				{[]stdmw.Option{stdmw.KeepHeaders("Grpc-Encoding")}, !onlyGRPC},
			} {
				url := serve(t, stdmw.Idempotent(newOnce(t, newLocker(t)), stdmw.AnyCaller(), c.opts...)(h))
				_, first := ask(t, url, &orders.Order{}, opts, "Idempotency-Key", "k")
				_, again := ask(t, url, &orders.Order{}, opts, "Idempotency-Key", "k")
				if first != nil || (again == nil) != c.replayed {
					t.Errorf("got %v, then %v, want replayed: %v", first, again, c.replayed)
				}
				if _, err := ask(t, url, &orders.Order{}, opts); connect.CodeOf(err) != connect.CodeInternal {
					t.Errorf("got %v without a key, want %v", err, connect.CodeInternal)
				}
			}
			// In another form the call counts as another request.
			url := serve(t, stdmw.Idempotent(newOnce(t, newLocker(t)), stdmw.AnyCaller())(h))
			if _, err := ask(t, url, &orders.Order{Id: "5"}, opts, "Idempotency-Key", "k"); err != nil {
				t.Error(err)
			}
			before := runs.Load()
			for other, opts := range clients {
				if other == name {
					continue
				}
				if r, err := ask(t, url, &orders.Order{Id: "5"}, opts, "Idempotency-Key", "k"); connect.CodeOf(err) != connect.CodeUnknown {
					t.Errorf("%s: got %v, %v, want %v", other, r, err, connect.CodeUnknown)
				}
			}
			if n := runs.Load() - before; n != 0 {
				t.Errorf("got %d runs in other forms, want none", n)
			}
			if _, err := ask(t, locked, &orders.Order{}, opts); connect.CodeOf(err) != connect.CodeUnknown {
				t.Errorf("got %v while it is busy, want %v", err, connect.CodeUnknown)
			}
		})
	}
}
