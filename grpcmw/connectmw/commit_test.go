package connectmw_test

import (
	"context"
	"errors"
	"testing"

	"connectrpc.com/connect"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/storetest/saving"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/connectmw"
	"github.com/lockkit/lockkit/grpcmw/internal/orders"
)

func TestCommit(t *testing.T) {
	t.Parallel()
	in := saving.New()
	locks, err := core.New(in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	receipt := func() *response {
		r := connect.NewResponse(&orders.Receipt{Text: "receipt"})
		r.Header().Set("Location", "/orders/5")
		return r
	}
	for name, c := range map[string]struct {
		h    handler
		want string
	}{
		"committed": {func(ctx context.Context, _ *request) (*response, error) {
			x, r := in.Begin(), receipt()
			if err := connectmw.Commit(ctx, x, r); err != nil {
				return nil, err
			}
			err := x.Commit()
			r.Msg.Text = "another text than was committed"
			return r, err
		}, "receipt, location /orders/5, replayed , "},
		"committed without a reply": {func(ctx context.Context, _ *request) (*response, error) {
			x := in.Begin()
			if err := connectmw.Commit(ctx, x, receipt()); err != nil {
				return nil, err
			}
			if err := x.Commit(); err != nil {
				return nil, err
			}
			return nil, connect.NewError(connect.CodeDataLoss, errors.New("no reply to the commit"))
		}, "receipt, location /orders/5, replayed , "},
		"committed by a second transaction": {func(ctx context.Context, _ *request) (*response, error) {
			var x *saving.Tx
			r := receipt()
			for range 2 {
				x = in.Begin()
				if err := connectmw.Commit(ctx, x, r); err != nil {
					return nil, err
				}
			}
			return r, x.Commit()
		}, "receipt, location /orders/5, replayed , "},
		"message of a handler without responses": {func(ctx context.Context, _ *request) (*response, error) {
			x := in.Begin()
			if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
				info.ResponseHeader().Set("Location", "/orders/5")
			}
			message := &orders.Receipt{Text: "receipt"}
			if err := connectmw.Commit(ctx, x, connect.NewResponse(message)); err != nil {
				return nil, err
			}
			return connect.NewResponse(message), x.Commit()
		}, "receipt, location /orders/5, replayed , "},
	} {
		runs := 0
		rule := grpcmw.Idempotent(newOnce(t, locks), func(context.Context, string, any) (string, error) { return name, nil }, grpcmw.KeepMetadata("location"))
		url := servePay(t, grpcmw.Rules{pay: {rule}}, func(ctx context.Context, r *request) (*response, error) {
			runs++
			return c.h(ctx, r)
		})
		for i, want := range []string{c.want, "receipt, location /orders/5, replayed true, true"} {
			r, err := ask(t, url, &orders.Order{}, nil, "Idempotency-Key", "k")
			if got := answer(r, err); got != want || runs != 1 {
				t.Errorf("%s, call %d: got %q after %d runs, want %q", name, i+1, got, runs, want)
			}
			if err == nil && len(r.Header().Values("Location")) != 1 {
				t.Errorf("%s, call %d: got %v, want one", name, i+1, r.Header().Values("Location"))
			}
		}
	}
}

// TestCommit_OuterInterceptor checks that the Idempotent of an outer interceptor stores
// the metadata of a committed response.
func TestCommit_OuterInterceptor(t *testing.T) {
	t.Parallel()
	in := saving.New()
	locks, err := core.New(in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	outer := connectmw.Interceptor(grpcmw.Rules{pay: {grpcmw.Idempotent(newOnce(t, locks), grpcmw.AnyCaller(), grpcmw.KeepMetadata("location"))}})
	url := servePay(t, grpcmw.Rules{pay: {grpcmw.Lock(locks, "order", grpcmw.AnyCaller())}}, func(ctx context.Context, _ *request) (*response, error) {
		x, r := in.Begin(), connect.NewResponse(&orders.Receipt{Text: "receipt"})
		r.Header().Set("Location", "/orders/5")
		if err := connectmw.Commit(ctx, x, r); err != nil {
			return nil, err
		}
		return r, x.Commit()
	}, outer)
	for _, want := range []string{"receipt, location /orders/5, replayed , ", "receipt, location /orders/5, replayed true, true"} {
		r, err := ask(t, url, &orders.Order{}, nil, "Idempotency-Key", "k")
		if got := answer(r, err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if err == nil && len(r.Header().Values("Location")) != 1 {
			t.Errorf("got the locations %v, want one", r.Header().Values("Location"))
		}
	}
}

func TestCommit_Refused(t *testing.T) {
	t.Parallel()
	locks := newLocker(t)
	url := servePay(t, idempotent(t), func(ctx context.Context, _ *request) (*response, error) {
		for name, refused := range map[string]struct {
			tx once.Saver
			r  connect.AnyResponse
		}{
			"no response":       {saving.New().Begin(), nil},
			"no transaction":    {nil, connect.NewResponse(&orders.Receipt{})},
			"no message of one": {saving.New().Begin(), connect.NewResponse(&struct{}{})},
		} {
			if err := connectmw.Commit(ctx, refused.tx, refused.r); !errors.Is(err, core.ErrInvalid) {
				t.Errorf("%s: got %v, want %v", name, err, core.ErrInvalid)
			}
		}
		return nil, connect.NewError(connect.CodeAborted, errors.New("rolled back"))
	})
	if _, err := ask(t, url, &orders.Order{}, nil, "Idempotency-Key", "k"); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("got %v, want the handler's error", err)
	}
	locked := servePay(t, grpcmw.Rules{pay: {grpcmw.Lock(locks, "order", grpcmw.AnyCaller())}}, func(ctx context.Context, _ *request) (*response, error) {
		r := connect.NewResponse(&orders.Receipt{})
		if err := connectmw.Commit(ctx, saving.New().Begin(), r); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("got %v without Idempotent, want %v", err, core.ErrInvalid)
		}
		return r, nil
	})
	if _, err := ask(t, locked, &orders.Order{}, nil); err != nil {
		t.Error(err)
	}
}
