package connectmw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/connectmw"
	"github.com/lockkit/lockkit/grpcmw/internal/orders"
	"github.com/lockkit/lockkit/retry"
)

// TestLostReplies loses requests and replies, and doubles requests, in each form
// (hazard 72). The handler must run once, and the client must get its response.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	for name, opts := range clients {
		for fault, action := range map[string]testserver.Action{
			"lost request": testserver.CloseRequest, "lost reply": testserver.CloseReply, "doubled request": testserver.DoubleRequest,
		} {
			t.Run(name+" "+fault, func(t *testing.T) {
				t.Parallel()
				var charges atomic.Int64
				url := servePay(t, idempotent(t), func(context.Context, *request) (*response, error) {
					return connect.NewResponse(&orders.Receipt{Charge: charges.Add(1)}), nil
				})
				proxy := testserver.NewHTTPProxy(t, strings.TrimPrefix(url, "http://"))
				f := proxy.Inject(testserver.Match{}, action)
				transport := &http.Transport{}
				t.Cleanup(transport.CloseIdleConnections)
				all := append([]connect.ClientOption{connect.WithInterceptors(connectmw.ClientInterceptor(quick))}, opts...)
				c := connect.NewClient[orders.Order, orders.Receipt](&http.Client{Transport: transport}, "http://"+proxy.Addr+pay, all...)
				ctx, cancel := context.WithTimeout(t.Context(), soon)
				defer cancel()
				r, err := c.CallUnary(ctx, connect.NewRequest(&orders.Order{Id: "5"}))
				f.Await(t)
				if action == testserver.DoubleRequest {
					f.AwaitAnswer(t)
				}
				if err != nil || r.Msg.GetCharge() != 1 || charges.Load() != 1 {
					t.Fatalf("got %v, %v and %d charges, want the first", r, err, charges.Load())
				}
				if replayed := r.Header().Get("Idempotent-Replayed"); action == testserver.CloseReply && replayed != "true" {
					t.Errorf("got a response that is not marked as a replay: %v", r.Header())
				}
			})
		}
	}
}

// TestLostReplies_Errors loses the reply to a call that the handler has refused, or
// whose repetition is refused before it reaches the rules (hazard 72). Only a replay
// shows the outcome of the first try.
func TestLostReplies_Errors(t *testing.T) {
	t.Parallel()
	for name, opts := range clients {
		for refusal, c := range map[string]struct {
			outside bool
			code    connect.Code
		}{
			"replayed":             {false, connect.CodeNotFound},
			"refused by a gateway": {true, connect.CodeUnknown},
		} {
			t.Run(name+" "+refusal, func(t *testing.T) {
				t.Parallel()
				var runs, calls atomic.Int64
				url := servePay(t, idempotent(t), func(context.Context, *request) (*response, error) {
					runs.Add(1)
					return nil, connect.NewError(connect.CodeNotFound, errors.New("no such order"))
				})
				proxy := testserver.NewHTTPProxy(t, strings.TrimPrefix(url, "http://"))
				f := proxy.Inject(testserver.Match{}, testserver.CloseReply)
				transport := &http.Transport{}
				t.Cleanup(transport.CloseIdleConnections)
				gateway := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
					return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
						if calls.Add(1) == 2 && c.outside {
							return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("expired"))
						}
						return next(ctx, req)
					}
				})
				all := append([]connect.ClientOption{connect.WithInterceptors(connectmw.ClientInterceptor(quick), gateway)}, opts...)
				client := connect.NewClient[orders.Order, orders.Receipt](&http.Client{Transport: transport}, "http://"+proxy.Addr+pay, all...)
				ctx, cancel := context.WithTimeout(t.Context(), soon)
				defer cancel()
				_, err := client.CallUnary(ctx, connect.NewRequest(&orders.Order{Id: "5"}))
				f.Await(t)
				if connect.CodeOf(err) != c.code || runs.Load() != 1 || calls.Load() != 2 {
					t.Errorf("got %v after %d runs and %d tries, want %v after 1 and 2", err, runs.Load(), calls.Load(), c.code)
				}
			})
		}
	}
}

// TestLostReplies_TransportRepeats loses the reply to a call on a kept-alive connection.
// net/http then repeats the call by itself. A refusal of the repetition must not hide
// the first call (hazard 72).
func TestLostReplies_TransportRepeats(t *testing.T) {
	t.Parallel()
	var charges, calls atomic.Int64
	gateway := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			if calls.Add(1) == 3 {
				return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("expired"))
			}
			return next(ctx, req)
		}
	})
	url := servePay(t, idempotent(t), func(context.Context, *request) (*response, error) {
		return connect.NewResponse(&orders.Receipt{Charge: charges.Add(1)}), nil
	}, gateway)
	proxy := testserver.NewHTTPProxy(t, strings.TrimPrefix(url, "http://"))
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := connect.NewClient[orders.Order, orders.Receipt](&http.Client{Transport: transport}, "http://"+proxy.Addr+pay,
		connect.WithInterceptors(connectmw.ClientInterceptor(grpcmw.Retry(retry.None))))
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if _, err := client.CallUnary(ctx, connect.NewRequest(&orders.Order{Id: "4"})); err != nil {
		t.Fatal(err)
	}
	f := proxy.Inject(testserver.Match{}, testserver.CloseReply)
	_, err := client.CallUnary(ctx, connect.NewRequest(&orders.Order{Id: "5"}))
	f.Await(t)
	if calls.Load() != 3 || charges.Load() != 2 {
		t.Fatalf("test setup: %d calls and %d charges", calls.Load(), charges.Load())
	}
	if connect.CodeOf(err) != connect.CodeUnknown {
		t.Errorf("got %v, want %v", err, connect.CodeUnknown)
	}
}

// TestGET calls a method without side effects by GET. A Lock applies to such a call, but
// Idempotent does not.
func TestGET(t *testing.T) {
	t.Parallel()
	const show = orders.Orders_Show_FullMethodName
	noEffects := connect.WithIdempotency(connect.IdempotencyNoSideEffects)
	open := func(t *testing.T, rule grpcmw.Rule, h handler) func(pairs ...string) (*response, error) {
		t.Helper()
		mux := http.NewServeMux()
		mux.Handle(show, connect.NewUnaryHandler(show, h, noEffects, connect.WithInterceptors(connectmw.Interceptor(grpcmw.Rules{show: {rule}}))))
		url := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				t.Errorf("got a %s, want a GET", r.Method)
			}
			mux.ServeHTTP(w, r)
		}))
		return func(pairs ...string) (*response, error) {
			r := connect.NewRequest(&orders.Order{Id: "5"})
			for i := 0; i < len(pairs); i += 2 {
				r.Header().Set(pairs[i], pairs[i+1])
			}
			return connect.NewClient[orders.Order, orders.Receipt](newHTTP(t), url+show, noEffects, connect.WithHTTPGet()).CallUnary(t.Context(), r)
		}
	}
	t.Run("Lock", func(t *testing.T) {
		t.Parallel()
		locks := newLocker(t)
		ask := open(t, grpcmw.Lock(locks, "order", grpcmw.Field("id")), func(ctx context.Context, _ *request) (*response, error) {
			lease, ok := core.LeaseFromContext(ctx)
			if !ok {
				return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("no lease"))
			}
			return connect.NewResponse(&orders.Receipt{Text: lease.Key()}), nil
		})
		if r, err := ask(); err != nil || r.Msg.GetText() != core.Key("order", "5") {
			t.Errorf("got %v, %v, want the lock", r, err)
		}
		lease, err := locks.Acquire(t.Context(), core.Key("order", "5"))
		if err != nil {
			t.Fatal(err)
		}
		if r, err := ask(); connect.CodeOf(err) != connect.CodeAborted || reasonOf(err) != grpcmw.ReasonBusy {
			t.Errorf("got %v, %v, want %s", r, err, grpcmw.ReasonBusy)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("Idempotent", func(t *testing.T) {
		t.Parallel()
		runs := 0
		ask := open(t, grpcmw.Idempotent(newOnce(t, newLocker(t)), grpcmw.AnyCaller()), func(context.Context, *request) (*response, error) {
			runs++
			return connect.NewResponse(&orders.Receipt{Charge: int64(runs)}), nil
		})
		for i, pairs := range [][]string{nil, {"Idempotency-Key", "k"}, {"Idempotency-Key", "k"}} {
			r, err := ask(pairs...)
			if err != nil || r.Msg.GetCharge() != int64(i+1) || r.Header().Get("Idempotent-Replayed") != "" {
				t.Errorf("call %d: got %v, %v, want a run of its own", i+1, r, err)
			}
		}
	})
}

// TestScopes checks that callers with different scopes do not share responses. One
// caller gets the same response in each form.
func TestScopes(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	rules := grpcmw.Rules{pay: {grpcmw.Idempotent(newOnce(t, newLocker(t)), grpcmw.Metadata("tenant-bin"))}}
	url := servePay(t, rules, func(context.Context, *request) (*response, error) {
		return connect.NewResponse(&orders.Receipt{Charge: runs.Add(1)}), nil
	})
	for i, tenant := range []string{"\x07\x01", "\x07\x02", "\x07"} {
		for name, opts := range clients {
			r, err := ask(t, url, &orders.Order{Id: "5"}, opts, "Idempotency-Key", "k", "Tenant-Bin", connect.EncodeBinaryHeader([]byte(tenant)))
			if err != nil || r.Msg.GetCharge() != int64(i+1) {
				t.Errorf("%s: caller %x got %v, %v, want charge %d", name, tenant, r, err, i+1)
			}
		}
	}
}

// TestAnnotated checks that the rules in a .proto apply to a service of connect.
func TestAnnotated(t *testing.T) {
	t.Parallel()
	locks := newLocker(t)
	rules, err := grpcmw.Annotated(locks, grpcmw.Runs(newOnce(t, locks), grpcmw.AnyCaller()))
	if err != nil {
		t.Fatal(err)
	}
	tills := connectmw.Services(orders.Tills_ServiceDesc.ServiceName)
	if err := grpcmw.Check(tills, rules); err != nil {
		t.Error(err)
	}
	if err := grpcmw.Audit(tills, rules); err == nil || !strings.Contains(err.Error(), orders.Tills_Void_FullMethodName) {
		t.Errorf("got %v, want an error about %s", err, orders.Tills_Void_FullMethodName)
	}
	mux := http.NewServeMux()
	var mu sync.Mutex
	runs := make(map[string]int)
	for _, method := range []string{orders.Tills_Pay_FullMethodName, orders.Tills_Settle_FullMethodName, orders.Tills_Ping_FullMethodName} {
		mux.Handle(method, connect.NewUnaryHandler(method, func(ctx context.Context, _ *request) (*response, error) {
			mu.Lock()
			defer mu.Unlock()
			runs[method]++
			r := &orders.Receipt{Charge: int64(runs[method])}
			if lease, ok := core.LeaseFromContext(ctx); ok && method == orders.Tills_Pay_FullMethodName {
				r.Text = lease.Key()
			}
			return connect.NewResponse(r), nil
		}, connect.WithInterceptors(connectmw.Interceptor(rules))))
	}
	url := start(t, mux)
	ask := func(method, key, id string, opts ...connect.ClientOption) string {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		r := connect.NewRequest(&orders.Order{Id: id, Kind: orders.Kind_KIND_CARD, Item: &orders.Item{Sku: "s"}})
		if key != "" {
			r.Header().Set("Idempotency-Key", key)
		}
		got, err := connect.NewClient[orders.Order, orders.Receipt](newHTTP(t), url+method, opts...).CallUnary(ctx, r)
		if err != nil {
			return reasonOf(err)
		}
		return strings.TrimSpace(fmt.Sprint(got.Msg.GetCharge(), " ", got.Msg.GetText()))
	}
	lease, err := locks.Acquire(t.Context(), core.Key("order", "busy"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ method, key, id, want string }{
		{orders.Tills_Pay_FullMethodName, "a", "5", "1 " + core.Key("till", "7", "s")},
		{orders.Tills_Pay_FullMethodName, "a", "5", "1 " + core.Key("till", "7", "s")},
		{orders.Tills_Pay_FullMethodName, "a", "6", grpcmw.ReasonMismatch},
		{orders.Tills_Pay_FullMethodName, "", "5", grpcmw.ReasonKeyInvalid},
		{orders.Tills_Pay_FullMethodName, "b", "busy", grpcmw.ReasonBusy},
		{orders.Tills_Settle_FullMethodName, "", "5", "1"}, // the field id is the key
		{orders.Tills_Settle_FullMethodName, "", "5", "1"},
		{orders.Tills_Settle_FullMethodName, "", "6", "2"},
		{orders.Tills_Ping_FullMethodName, "k", "5", "1"},
		{orders.Tills_Ping_FullMethodName, "k", "5", "2"},
	} {
		if got := ask(c.method, c.key, c.id); got != c.want {
			t.Errorf("%s under %q of %s: got %q, want %q", c.method, c.key, c.id, got, c.want)
		}
	}
	for name, opts := range clients {
		if got := ask(orders.Tills_Pay_FullMethodName, "a", "5", opts...); got != "1 "+core.Key("till", "7", "s") {
			t.Errorf("%s: got %q, want the first answer", name, got)
		}
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
