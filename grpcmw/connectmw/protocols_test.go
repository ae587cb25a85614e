package connectmw_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/connectmw"
	"github.com/lockkit/lockkit/grpcmw/internal/orders"
)

type (
	request  = connect.Request[orders.Order]
	response = connect.Response[orders.Receipt]
	handler  = func(context.Context, *request) (*response, error)
)

const pay = orders.Orders_Pay_FullMethodName

func newLocker(t *testing.T) *core.Locker {
	t.Helper()
	locks, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return locks
}

func newOnce(t *testing.T, locks *core.Locker, opts ...once.Option) *once.Once {
	t.Helper()
	runs, err := once.New(locks, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

func idempotent(t *testing.T, opts ...grpcmw.Option) grpcmw.Rules {
	return grpcmw.Rules{pay: {grpcmw.Idempotent(newOnce(t, newLocker(t)), grpcmw.AnyCaller(), opts...)}}
}

func servePay(t *testing.T, rules grpcmw.Rules, h handler, outer ...connect.Interceptor) (url string) {
	t.Helper()
	return serve(t, connect.NewUnaryHandler(pay, h, connect.WithInterceptors(append(outer, connectmw.Interceptor(rules))...)))
}

// asking has the HTTP clients of ask, by URL.
var asking sync.Map

// ask calls Pay. pairs has the names and values of headers.
func ask(t *testing.T, url string, o *orders.Order, opts []connect.ClientOption, pairs ...string) (*response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	r := connect.NewRequest(o)
	for i := 0; i < len(pairs); i += 2 {
		r.Header().Add(pairs[i], pairs[i+1])
	}
	h, ok := asking.Load(url)
	if !ok { // a connection for each call costs more than the call
		h, _ = asking.LoadOrStore(url, newHTTP(t))
	}
	return connect.NewClient[orders.Order, orders.Receipt](h.(*http.Client), url+pay, opts...).CallUnary(ctx, r)
}

// answer returns a client's response as text, in one form for all protocols.
func answer(r *response, err error) string {
	if err == nil {
		return fmt.Sprintf("%s, location %s, replayed %s, %s", r.Msg.GetText(), r.Header().Get("Location"), r.Header().Get("Idempotent-Replayed"), r.Trailer().Get("Idempotent-Replayed"))
	}
	var own *connect.Error
	if !errors.As(err, &own) {
		return err.Error()
	}
	text := fmt.Sprintf("%v, location %s, replayed %s", own, own.Meta().Get("Location"), own.Meta().Get("Idempotent-Replayed"))
	for _, d := range own.Details() {
		m, err := d.Value()
		if err != nil {
			return err.Error()
		}
		switch m := m.(type) {
		case *errdetails.PreconditionFailure:
			text += ", subject " + m.GetViolations()[0].GetSubject()
		case *errdetails.ErrorInfo:
			text += ", reason " + m.GetReason()
		}
	}
	return text
}

// TestProtocols checks that one run's response is replayed in the form of each client.
func TestProtocols(t *testing.T) {
	t.Parallel()
	declined := func() *connect.Error {
		err := connect.NewError(connect.CodeFailedPrecondition, errors.New("declined"))
		d, detail := connect.NewErrorDetail(&errdetails.PreconditionFailure{Violations: []*errdetails.PreconditionFailure_Violation{{Subject: "card"}}})
		if detail != nil {
			t.Error(detail)
		}
		err.AddDetail(d)
		err.Meta().Set("Location", "/declined")
		return err
	}
	for name, c := range map[string]struct {
		h                   handler
		first, again, other string
	}{
		"response": {
			func(context.Context, *request) (*response, error) {
				r := connect.NewResponse(&orders.Receipt{Text: "paid"})
				r.Header().Set("Location", "/orders/5")
				return r, nil
			},
			"paid, location /orders/5, replayed , ", "paid, location /orders/5, replayed true, true",
			"failed_precondition: the idempotency key was used for another request, location , replayed , reason IDEMPOTENCY_KEY_REUSED",
		},
		"error": {
			func(context.Context, *request) (*response, error) { return nil, fmt.Errorf("pay: %w", declined()) },
			"failed_precondition: declined, location /declined, replayed , subject card", "failed_precondition: declined, location /declined, replayed true, subject card",
			"failed_precondition: the idempotency key was used for another request, location , replayed , reason IDEMPOTENCY_KEY_REUSED",
		},
	} {
		for _, first := range slices.Sorted(maps.Keys(clients)) {
			t.Run(name+" "+first, func(t *testing.T) {
				t.Parallel()
				var runs atomic.Int32
				url := servePay(t, idempotent(t, grpcmw.KeepMetadata("location")), func(ctx context.Context, r *request) (*response, error) {
					runs.Add(1)
					return c.h(ctx, r)
				})
				if got := answer(ask(t, url, &orders.Order{Id: "5"}, clients[first], "Idempotency-Key", "k")); got != c.first {
					t.Errorf("got %q, want %q", got, c.first)
				}
				for again, opts := range clients {
					if got := answer(ask(t, url, &orders.Order{Id: "5"}, opts, "Idempotency-Key", "k")); got != c.again {
						t.Errorf("%s: got %q, want %q", again, got, c.again)
					}
					if got := answer(ask(t, url, &orders.Order{Id: "6"}, opts, "Idempotency-Key", "k")); got != c.other {
						t.Errorf("%s: got %q, want %q", again, got, c.other)
					}
				}
				if runs.Load() != 1 {
					t.Errorf("got %d runs, want 1", runs.Load())
				}
			})
		}
	}
}

type payments struct {
	orders.UnimplementedOrdersServer
	pay func(context.Context, *orders.Order) (*orders.Receipt, error)
}

func (p *payments) Pay(ctx context.Context, o *orders.Order) (*orders.Receipt, error) {
	return p.pay(ctx, o)
}

// TestShared checks that a service that moves between grpc-go and connect finds its
// earlier responses.
func TestShared(t *testing.T) {
	t.Parallel()
	rules, runs := idempotent(t), atomic.Int32{}
	service := &payments{pay: func(context.Context, *orders.Order) (*orders.Receipt, error) {
		return &orders.Receipt{Text: fmt.Sprint("run ", runs.Add(1))}, nil
	}}
	server := grpc.NewServer(grpcmw.ServerOptions(rules)...)
	orders.RegisterOrdersServer(server, service)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	byGRPC, byConnect := "http://"+listener.Addr().String(), open(t, service, rules)
	grpcOnly := []connect.ClientOption{connect.WithGRPC()}
	for i, urls := range [][2]string{{byGRPC, byConnect}, {byConnect, byGRPC}} {
		key, want := fmt.Sprint("key-", i), fmt.Sprint("run ", i+1)
		for _, url := range urls {
			r, err := ask(t, url, &orders.Order{Id: "5"}, grpcOnly, "Idempotency-Key", key)
			if err != nil || r.Msg.GetText() != want {
				t.Errorf("got %v, %v, want %q", r, err, want)
			}
		}
		if _, err := ask(t, urls[1], &orders.Order{Id: "6"}, grpcOnly, "Idempotency-Key", key); connect.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Errorf("got %v for another request, want %v", err, connect.CodeFailedPrecondition)
		}
	}
	if runs.Load() != 2 {
		t.Errorf("got %d runs, want 2", runs.Load())
	}
}

// TestHandlers checks the responses and errors of handlers that are specific to connect.
func TestHandlers(t *testing.T) {
	t.Parallel()
	fails := func(err error) handler {
		return func(context.Context, *request) (*response, error) { return nil, err }
	}
	foreign := connect.NewWireError(connect.CodeNotFound, errors.New("no such account"))
	foreign.Meta().Set("Location", "/bank")
	shared := connect.NewError(connect.CodeNotFound, errors.New("no such order"))
	for name, c := range map[string]struct {
		h    handler
		opts []once.Option
		want [2]string
		runs int32
	}{
		"error of another service":  {fails(foreign), nil, [2]string{"not_found: no such account, location , replayed ", "not_found: no such account, location , replayed true"}, 1},
		"error that handlers share": {fails(shared), nil, [2]string{"not_found: no such order, location , replayed ", "not_found: no such order, location , replayed true"}, 1},
		"error without a code":      {fails(errors.New("closed")), nil, [2]string{"unknown: closed, location , replayed ", "unknown: closed, location , replayed "}, 2},
		"marked by Withdraw": {
			fails(once.Withdraw(shared)), []once.Option{once.AtMostOnce()},
			[2]string{"not_found: no such order, location , replayed ", "not_found: no such order, location , replayed "}, 2,
		},
		"time-out of a connection": {
			fails(os.ErrDeadlineExceeded), []once.Option{once.AtMostOnce()},
			[2]string{
				"deadline_exceeded: i/o timeout, location , replayed ",
				"failed_precondition: the first call broke off and may have had its effect; it is not run again, location , replayed , reason IDEMPOTENCY_INDETERMINATE",
			}, 1,
		},
		"no message": {
			func(context.Context, *request) (*response, error) {
				return connect.NewResponse[orders.Receipt](nil), nil
			}, nil,
			[2]string{", location , replayed , ", ", location , replayed true, true"}, 1,
		},
		"headers in the context": {
			func(ctx context.Context, _ *request) (*response, error) {
				if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
					info.ResponseHeader().Set("Location", "/info")
				}
				return connect.NewResponse(&orders.Receipt{Text: "paid"}), nil
			}, nil, [2]string{"paid, location /info, replayed , ", "paid, location /info, replayed true, true"}, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int32
			rule := grpcmw.Idempotent(newOnce(t, newLocker(t), c.opts...), grpcmw.AnyCaller(), grpcmw.KeepMetadata("location"))
			url := servePay(t, grpcmw.Rules{pay: {rule}}, func(ctx context.Context, r *request) (*response, error) {
				runs.Add(1)
				return c.h(ctx, r)
			})
			for i, want := range c.want {
				if got := answer(ask(t, url, &orders.Order{}, nil, "Idempotency-Key", "k")); got != want {
					t.Errorf("answer %d: got %q, want %q", i+1, got, want)
				}
			}
			if runs.Load() != c.runs {
				t.Errorf("got %d runs, want %d", runs.Load(), c.runs)
			}
		})
	}
}

// TestRefusal checks the HTTP responses to refused requests of clients without a
// library.
func TestRefusal(t *testing.T) {
	t.Parallel()
	locks := newLocker(t)
	lease, err := locks.Acquire(t.Context(), core.Key("order", "5"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Release(context.Background()) }()
	url := servePay(t, grpcmw.Rules{pay: {grpcmw.Lock(locks, "order", grpcmw.Field("id"))}}, nil)
	for body, want := range map[string]string{`{"id":"5"}`: "409 1", `{}`: "400 "} {
		r, err := newHTTP(t).Post(url+pay, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if got := fmt.Sprint(r.StatusCode, " ", r.Header.Get("Retry-After")); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestKeyFunc checks that an error of connect or of grpc-go from a KeyFunc is sent over
// each protocol, without a call of Render.
func TestKeyFunc(t *testing.T) {
	t.Parallel()
	locks := newLocker(t)
	violation := &errdetails.PreconditionFailure{Violations: []*errdetails.PreconditionFailure_Violation{{Subject: "session"}}}
	detail, err := connect.NewErrorDetail(violation)
	if err != nil {
		t.Fatal(err)
	}
	own := connect.NewError(connect.CodeUnauthenticated, errors.New("log in first"))
	own.AddDetail(detail)
	own.Meta().Set("Location", "/login")
	theirs, err := status.New(codes.Unauthenticated, "log in first").WithDetails(violation)
	if err != nil {
		t.Fatal(err)
	}
	render := grpcmw.Render(func(context.Context, grpcmw.Refusal) *status.Status { return status.New(codes.DataLoss, "rendered") })
	const unauthenticated = "unauthenticated: log in first, location %s, replayed , subject session"
	const failed = "internal: the key of the call could not be determined, location , replayed , reason LOCK_FAILED"
	const rendered = "data_loss: rendered, location , replayed "
	for name, c := range map[string]struct {
		failure        error
		want, rendered string
	}{
		"connect":         {own, fmt.Sprintf(unauthenticated, "/login"), fmt.Sprintf(unauthenticated, "/login")},
		"wrapped connect": {fmt.Errorf("caller: %w", own), fmt.Sprintf(unauthenticated, "/login"), fmt.Sprintf(unauthenticated, "/login")},
		"grpc-go":         {theirs.Err(), fmt.Sprintf(unauthenticated, ""), fmt.Sprintf(unauthenticated, "")},
		"without a code":  {errors.New("secret"), failed, rendered},
		"code 0":          {connect.NewError(0, errors.New("secret")), failed, rendered},
		"context":         {context.Canceled, failed, rendered},
	} {
		key := func(context.Context, string, any) (string, error) { return "", c.failure }
		runs := newOnce(t, newLocker(t)) // separate for each case, because cases run in parallel
		for where, rules := range map[string][]grpcmw.Rule{
			"Lock":             {grpcmw.Lock(locks, "order", key)},
			"Lock with Render": {grpcmw.Lock(locks, "order", key, render)},
			"scope":            {grpcmw.Idempotent(runs, key)},
			"in an Idempotent": {grpcmw.Idempotent(runs, grpcmw.AnyCaller(), grpcmw.KeepMetadata("location")), grpcmw.Lock(locks, "order", key)},
		} {
			t.Run(name+" "+where, func(t *testing.T) {
				t.Parallel()
				want := c.want
				if where == "Lock with Render" {
					want = c.rendered
				}
				url := servePay(t, grpcmw.Rules{pay: rules}, nil)
				for client, opts := range clients {
					if got := answer(ask(t, url, &orders.Order{}, opts, "Idempotency-Key", "k")); got != want {
						t.Errorf("%s: got %q, want %q", client, got, want)
					}
				}
			})
		}
		t.Run(name+" stream", func(t *testing.T) {
			t.Parallel()
			rules := grpcmw.Rules{watch: {grpcmw.Lock(locks, "order", key)}}
			url := serveStream(t, watch, rules, func(o ...connect.HandlerOption) *connect.Handler {
				return connect.NewServerStreamHandler(watch, func(context.Context, *request, *connect.ServerStream[orders.Receipt]) error {
					t.Error("the handler ran")
					return nil
				}, o...)
			})
			for client, opts := range clients {
				s, err := connect.NewClient[orders.Order, orders.Receipt](newHTTP(t), url, opts...).CallServerStream(t.Context(), connect.NewRequest(&orders.Order{}))
				if err != nil {
					t.Fatal(err)
				}
				if s.Receive() || answer(nil, s.Err()) != c.want {
					t.Errorf("%s: got %q, want %q", client, answer(nil, s.Err()), c.want)
				}
				_ = s.Close()
			}
		})
	}
}

// TestBinaryHeaders checks that values of binary headers are decoded. A header counts
// as missing if a value is not base64.
func TestBinaryHeaders(t *testing.T) {
	t.Parallel()
	rules := grpcmw.Rules{pay: {grpcmw.Lock(newLocker(t), "order", grpcmw.Metadata("x-id-bin"))}}
	url := servePay(t, rules, func(ctx context.Context, _ *request) (*response, error) {
		lease, _ := core.LeaseFromContext(ctx)
		return connect.NewResponse(&orders.Receipt{Text: lease.Key()}), nil
	})
	for sent, want := range map[string]string{
		connect.EncodeBinaryHeader([]byte{7, 0xff}): core.Key("order", "07ff"),
		"Bw==":      core.Key("order", "07"),
		"Bw==,Bw==": connect.CodeInvalidArgument.String(),
		"%":         connect.CodeInvalidArgument.String(),
		"%,Bw==":    connect.CodeInvalidArgument.String(),
		"Bw==,%":    connect.CodeInvalidArgument.String(),
	} {
		r, err := ask(t, url, &orders.Order{}, nil, "X-Id-Bin", sent)
		got := connect.CodeOf(err).String()
		if err == nil {
			got = r.Msg.GetText()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", sent, got, want)
		}
	}
}

// TestTwoInterceptors checks that a refusal by an inner interceptor does not count as
// an attempt for an outer interceptor.
func TestTwoInterceptors(t *testing.T) {
	t.Parallel()
	locks := newLocker(t)
	runs := newOnce(t, locks, once.AtMostOnce())
	outside := connectmw.Interceptor(grpcmw.Rules{pay: {grpcmw.Idempotent(runs, grpcmw.AnyCaller(), grpcmw.KeepIf(func(grpcmw.Kept) bool { return true }))}})
	url := servePay(t, grpcmw.Rules{pay: {grpcmw.Lock(locks, "order", grpcmw.Field("id"))}}, func(ctx context.Context, _ *request) (*response, error) {
		n, _ := once.AttemptFromContext(ctx)
		return connect.NewResponse(&orders.Receipt{Text: fmt.Sprint("attempt ", n)}), nil
	}, outside)
	lease, err := locks.Acquire(t.Context(), core.Key("order", "5"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, url, &orders.Order{Id: "5"}, nil, "Idempotency-Key", "k"); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("got %v, want %v", err, connect.CodeAborted)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r, err := ask(t, url, &orders.Order{Id: "5"}, nil, "Idempotency-Key", "k")
		if err != nil || r.Msg.GetText() != "attempt 1" {
			t.Errorf("got %v, %v, want attempt 1", r, err)
		}
	}
}

// TestInterceptor_NewRequest checks that rules apply even if an outer interceptor
// passes a new request, which names no procedure. The handler must not find the owner
// in the headers of the original request.
func TestInterceptor_NewRequest(t *testing.T) {
	t.Parallel()
	locks := newLocker(t)
	outer := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			r := connect.NewRequest(req.Any().(*orders.Order))
			maps.Copy(r.Header(), req.Header())
			return next(ctx, r)
		}
	})
	rules := grpcmw.Rules{pay: {grpcmw.Lock(locks, "order", grpcmw.Field("id"), grpcmw.TakeOwner())}}
	url := servePay(t, rules, func(ctx context.Context, _ *request) (*response, error) {
		if info, ok := connect.CallInfoForHandlerContext(ctx); !ok || info.RequestHeader().Get("Lockkit-Owner") != "" {
			t.Error("got the owner of the caller's lease, want none")
		}
		lease, ok := core.LeaseFromContext(ctx)
		if !ok {
			return nil, errors.New("no lease")
		}
		return connect.NewResponse(&orders.Receipt{Text: lease.Key()}), nil
	}, outer)
	for client, opts := range clients {
		r, err := ask(t, url, &orders.Order{Id: "5"}, opts, "Lockkit-Owner", "someone")
		if err != nil || r.Msg.GetText() != core.Key("order", "5") {
			t.Errorf("%s: got %v, %v, want the lock", client, r, err)
		}
	}
	lease, err := locks.Acquire(t.Context(), core.Key("order", "5"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Release(context.Background()) }()
	_, err = ask(t, url, &orders.Order{Id: "5"}, nil)
	if own := (*connect.Error)(nil); !errors.As(err, &own) || own.Code() != connect.CodeAborted || own.Meta().Get("Retry-After") == "" {
		t.Errorf("got %v, want %v with Retry-After", err, connect.CodeAborted)
	}
}

// TestServices checks that wrong rules are reported before any call is served.
func TestServices(t *testing.T) {
	t.Parallel()
	shop := connectmw.Services(orders.Orders_ServiceDesc.ServiceName)
	none := grpcmw.Rules{
		pay: {grpcmw.None()}, orders.Orders_Refund_FullMethodName: {grpcmw.None()}, orders.Orders_Watch_FullMethodName: {grpcmw.None()},
		orders.Orders_Upload_FullMethodName: {grpcmw.None()}, orders.Orders_Chat_FullMethodName: {grpcmw.None()},
	}
	if err := grpcmw.Audit(shop, none); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	delete(none, pay)
	if err := grpcmw.Audit(shop, none); !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), pay) {
		t.Errorf("got %v, want %s", err, pay)
	}
	onStream := idempotent(t)
	onStream[orders.Orders_Watch_FullMethodName] = onStream[pay]
	for fault, rules := range map[string]grpcmw.Rules{
		"no such method": {"/lockkit.grpcmw.test.Orders/Buy": {grpcmw.None()}}, "cannot be applied to a stream": onStream,
	} {
		if err := grpcmw.Check(shop, rules); !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), fault) {
			t.Errorf("got %v, want %s", err, fault)
		}
	}
	for name, wrong := range map[string]func(){
		"another service": func() { connectmw.Services("lockkit.grpcmw.test.Order") },
		"no procedure":    func() { connectmw.Interceptor(grpcmw.Rules{"Pay": {grpcmw.None()}}) },
		"nil option":      func() { connectmw.ClientInterceptor(nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: got no panic", name)
				}
			}()
			wrong()
		}()
	}
}

// TestOuter checks that an outer interceptor gets a replayed message with its own type.
func TestOuter(t *testing.T) {
	t.Parallel()
	var got atomic.Value
	outer := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			r, err := next(ctx, req)
			if err == nil {
				got.Store(proto.Clone(r.Any().(*orders.Receipt)).(*orders.Receipt).GetText())
			}
			return r, err
		}
	})
	url := servePay(t, idempotent(t), func(context.Context, *request) (*response, error) {
		return connect.NewResponse(&orders.Receipt{Text: "paid"}), nil
	}, outer)
	for range 2 {
		got.Store("")
		if _, err := ask(t, url, &orders.Order{}, nil, "Idempotency-Key", "k"); err != nil || got.Load() != "paid" {
			t.Errorf("got %v, %v, want paid", got.Load(), err)
		}
	}
}
