package connectmw_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/connectmw"
	"github.com/lockkit/lockkit/grpcmw/internal/orders"
	"github.com/lockkit/lockkit/retry"
)

// quick is a retry policy with pauses of a millisecond.
var quick = grpcmw.Retry(retry.Policy{Initial: time.Millisecond, Max: time.Millisecond, Multiplier: 1, Attempts: 3})

// heard records the values of a header for each try.
type heard struct {
	mu     sync.Mutex
	values [][]string
}

func (h *heard) note(values []string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.values = append(h.values, slices.Clone(values))
	return len(h.values)
}

func callPay(ctx context.Context, t *testing.T, url string, r *request, opts []connect.ClientOption, own ...grpcmw.ClientOption) (*response, error) {
	t.Helper()
	opts = append(slices.Clone(opts), connect.WithInterceptors(connectmw.ClientInterceptor(own...)))
	return connect.NewClient[orders.Order, orders.Receipt](newHTTP(t), url+pay, opts...).CallUnary(ctx, r)
}

// TestClientInterceptor_RequestTwice checks that two calls with the same request have
// different keys, and that an inner interceptor gets only the caller's own outgoing
// metadata.
func TestClientInterceptor_RequestTwice(t *testing.T) {
	t.Parallel()
	var keys heard
	url := servePay(t, nil, func(_ context.Context, r *request) (*response, error) {
		keys.note(r.Header().Values("Idempotency-Key"))
		return connect.NewResponse(&orders.Receipt{Text: "paid"}), nil
	})
	inner := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			if md, _ := metadata.FromOutgoingContext(ctx); len(md) != 1 || len(md.Get("own")) != 1 {
				t.Errorf("got the outgoing metadata %v, want the caller's", md)
			}
			return next(ctx, req)
		}
	})
	client := connect.NewClient[orders.Order, orders.Receipt](newHTTP(t), url+pay, connect.WithInterceptors(connectmw.ClientInterceptor(quick), inner))
	r := connect.NewRequest(&orders.Order{})
	for range 2 {
		if _, err := client.CallUnary(metadata.AppendToOutgoingContext(t.Context(), "own", "1"), r); err != nil {
			t.Fatal(err)
		}
		if got := r.Header().Values("Idempotency-Key"); len(got) != 0 {
			t.Errorf("got the key %q in the caller's request, want none", got)
		}
	}
	if len(keys.values) != 2 || keys.values[0][0] == keys.values[1][0] {
		t.Errorf("got the keys %v, want two", keys.values)
	}
}

func TestClientInterceptor(t *testing.T) {
	t.Parallel()
	for name, opts := range clients {
		t.Run("one key over all tries "+name, func(t *testing.T) {
			t.Parallel()
			var keys heard
			url := servePay(t, nil, func(_ context.Context, r *request) (*response, error) {
				if keys.note(r.Header().Values("Idempotency-Key")) < 3 {
					return nil, connect.NewError(connect.CodeUnavailable, errors.New("down"))
				}
				return connect.NewResponse(&orders.Receipt{Text: "paid"}), nil
			})
			r, err := callPay(t.Context(), t, url, connect.NewRequest(&orders.Order{}), opts, quick)
			if err != nil || r.Msg.GetText() != "paid" || len(keys.values) != 3 {
				t.Fatalf("got %v, %v after %d tries, want paid after 3", r, err, len(keys.values))
			}
			for _, sent := range keys.values {
				if len(sent) != 1 || sent[0] == "" || sent[0] != keys.values[0][0] {
					t.Errorf("got the keys %v, want one key", keys.values)
				}
			}
		})
		t.Run("waits for a busy lock "+name, func(t *testing.T) {
			t.Parallel()
			locks := newLocker(t)
			lease, err := locks.Acquire(t.Context(), core.Key("order", "5"))
			if err != nil {
				t.Fatal(err)
			}
			var tries heard
			count := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
				return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
					response, err := next(ctx, req)
					if err != nil && tries.note(nil) == 1 {
						err = errors.Join(err, lease.Release(ctx))
					}
					return response, err
				}
			})
			url := servePay(t, grpcmw.Rules{pay: {grpcmw.Lock(locks, "order", grpcmw.Field("id"))}}, func(context.Context, *request) (*response, error) {
				return connect.NewResponse(&orders.Receipt{Text: "paid"}), nil
			}, count)
			if r, err := callPay(t.Context(), t, url, connect.NewRequest(&orders.Order{Id: "5"}), opts, quick); err != nil || r.Msg.GetText() != "paid" {
				t.Errorf("got %v, %v, want paid", r, err)
			}
		})
	}
	t.Run("stops after a final refusal", func(t *testing.T) {
		t.Parallel()
		tries := 0
		count := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
				tries++
				return next(ctx, req)
			}
		})
		url := servePay(t, grpcmw.Rules{pay: {grpcmw.Lock(newLocker(t), "order", grpcmw.Field("id"))}}, nil, count)
		_, err := callPay(t.Context(), t, url, connect.NewRequest(&orders.Order{}), nil, quick, grpcmw.RetryCodes())
		if connect.CodeOf(err) != connect.CodeInvalidArgument || tries != 1 || reasonOf(err) != grpcmw.ReasonKeyInvalid {
			t.Errorf("got %v after %d tries, want %v after 1", err, tries, connect.CodeInvalidArgument)
		}
	})
	t.Run("keeps the given key", func(t *testing.T) {
		t.Parallel()
		var keys heard
		url := servePay(t, nil, func(_ context.Context, r *request) (*response, error) {
			keys.note(r.Header().Values("Idempotency-Key"))
			return connect.NewResponse(&orders.Receipt{}), nil
		})
		r := connect.NewRequest(&orders.Order{})
		r.Header().Set("Idempotency-Key", "mine")
		if _, err := callPay(t.Context(), t, url, r, nil); err != nil || !slices.Equal(keys.values[0], []string{"mine"}) {
			t.Errorf("got %v, %v, want the caller's key", keys.values, err)
		}
	})
	t.Run("canceled while it waits", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		inside := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
				defer cancel()
				return next(ctx, req)
			}
		})
		url := servePay(t, nil, func(context.Context, *request) (*response, error) {
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("down"))
		})
		long := grpcmw.Retry(retry.Policy{Initial: time.Hour, Max: time.Hour, Multiplier: 1})
		c := connect.NewClient[orders.Order, orders.Receipt](newHTTP(t), url+pay, connect.WithInterceptors(connectmw.ClientInterceptor(long), inside))
		if _, err := c.CallUnary(ctx, connect.NewRequest(&orders.Order{})); connect.CodeOf(err) != connect.CodeCanceled {
			t.Errorf("got %v, want %v", err, connect.CodeCanceled)
		}
	})
}

// TestOwner checks that a call joins its caller's hold, and that the handler does not
// get the owner. A call with a changed owner does not join the hold.
func TestOwner(t *testing.T) {
	t.Parallel()
	locks := newLocker(t)
	rules := grpcmw.Rules{pay: {grpcmw.Lock(locks, "order", grpcmw.Field("id"), grpcmw.TakeOwner())}}
	var owners heard
	url := servePay(t, rules, func(ctx context.Context, r *request) (*response, error) {
		lease, _ := core.LeaseFromContext(ctx)
		owners.note(r.Header().Values("Lockkit-Owner"))
		return connect.NewResponse(&orders.Receipt{Text: lease.Key()}), nil
	})
	lease, err := locks.Acquire(t.Context(), core.Key("order", "5"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Release(context.Background()) }()
	order := func() *request { return connect.NewRequest(&orders.Order{Id: "5"}) }
	for name, opts := range clients {
		if r, err := callPay(lease.Context(), t, url, order(), opts, grpcmw.SendOwner()); err != nil || r.Msg.GetText() != lease.Key() {
			t.Errorf("%s: got %v, %v, want to join", name, r, err)
		}
		if _, err := callPay(lease.Context(), t, url, order(), opts, grpcmw.Retry(retry.None)); connect.CodeOf(err) != connect.CodeAborted {
			t.Errorf("%s: got %v without SendOwner, want %v", name, err, connect.CodeAborted)
		}
	}
	owner := lease.Owner()
	for _, changed := range []string{owner[1:], owner[:len(owner)-1], owner + "0", owner[:9] + " " + owner[9:], owner + " " + owner} {
		for name, opts := range clients {
			r := order()
			r.Header().Set("Lockkit-Owner", changed)
			if _, err := callPay(t.Context(), t, url, r, opts, grpcmw.Retry(retry.None)); connect.CodeOf(err) != connect.CodeAborted {
				t.Errorf("%s: got %v for a changed owner, want %v", name, err, connect.CodeAborted)
			}
		}
	}
	if len(owners.values) != len(clients) || slices.ContainsFunc(owners.values, func(v []string) bool { return len(v) > 0 }) {
		t.Errorf("got the owners %v in handlers, want none", owners.values)
	}
}

// TestClient_GRPC checks that grpcmw's client interceptor repeats calls to a connect
// server.
func TestClient_GRPC(t *testing.T) {
	t.Parallel()
	var keys heard
	url := servePay(t, nil, func(_ context.Context, r *request) (*response, error) {
		if keys.note(r.Header().Values("Idempotency-Key")) == 1 {
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("down"))
		}
		return connect.NewResponse(&orders.Receipt{Text: "paid"}), nil
	})
	client := dial(t, url, grpc.WithUnaryInterceptor(grpcmw.UnaryClientInterceptor(quick)))
	r, err := client.Pay(t.Context(), &orders.Order{})
	if err != nil || r.GetText() != "paid" || len(keys.values) != 2 || !slices.Equal(keys.values[0], keys.values[1]) {
		t.Errorf("got %v, %v with the keys %v, want paid with one", r, err, keys.values)
	}
}
