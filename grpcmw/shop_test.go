package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/grpcmw"
)

func TestMain(m *testing.M) {
	logging.Disable() // Redis clients log every server that a test has stopped
	if code := m.Run(); code != 0 {
		os.Exit(code)
	}
	if err := goleak.Find(); err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

// key is the metadata of a call's idempotency key, and pushback the trailer with the
// pause before the next try.
const (
	key      = "idempotency-key"
	pushback = "grpc-retry-pushback-ms"
)

// soon is a deadline for what should not take long, on a busy machine.
const soon = 20 * time.Second

// shop is a gRPC service on a real listener, with its own locker and store.
type shop struct {
	handlers
	t      *testing.T
	store  *stub
	locker *core.Locker
	addr   string
	client OrdersClient // without interceptors
	listen func(net.Listener) net.Listener
}

// handlers is a service whose methods a test can set.
type handlers struct {
	UnimplementedOrdersServer
	pay    func(context.Context, *Order) (*Receipt, error)
	refund func(context.Context, *Order) (*Receipt, error)
	show   func(context.Context, *Order) (*Receipt, error)
	watch  func(*Order, grpc.ServerStreamingServer[Receipt]) error
	upload func(grpc.ClientStreamingServer[Order, Receipt]) error
	chat   func(grpc.BidiStreamingServer[Order, Receipt]) error
}

func (h *handlers) Pay(ctx context.Context, o *Order) (*Receipt, error)    { return h.pay(ctx, o) }
func (h *handlers) Refund(ctx context.Context, o *Order) (*Receipt, error) { return h.refund(ctx, o) }
func (h *handlers) Show(ctx context.Context, o *Order) (*Receipt, error)   { return h.show(ctx, o) }
func (h *handlers) Watch(o *Order, s grpc.ServerStreamingServer[Receipt]) error {
	return h.watch(o, s)
}
func (h *handlers) Upload(s grpc.ClientStreamingServer[Order, Receipt]) error { return h.upload(s) }
func (h *handlers) Chat(s grpc.BidiStreamingServer[Order, Receipt]) error     { return h.chat(s) }

// newShop returns a shop in memory whose methods respond with the key of their lease.
func newShop(t *testing.T, opts ...core.Option) *shop {
	t.Helper()
	s := &shop{t: t, store: &stub{Store: memstore.New()}}
	s.pay, s.refund, s.show = ok, ok, ok
	return s.lockIn(s.store, opts...)
}

func (s *shop) lockIn(store core.Store, opts ...core.Option) *shop {
	s.t.Helper()
	var err error
	if s.locker, err = core.New(store, opts...); err != nil {
		s.t.Fatal(err)
	}
	locker := s.locker
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := locker.Close(ctx); err != nil {
			s.t.Error(err)
		}
	})
	return s
}

// lock returns a Lock on the field id.
func (s *shop) lock(opts ...grpcmw.Option) grpcmw.Rule {
	return grpcmw.Lock(s.locker, "order", grpcmw.Field("id"), opts...)
}

// runs returns a Once in the shop's store.
func (s *shop) runs(opts ...once.Option) *once.Once {
	s.t.Helper()
	o, err := once.New(s.locker, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.store != nil {
		s.store.attempts.Store(0) // it has asked whether records are kept
	}
	return o
}

// on returns Rules with one method.
func on(method string, rules ...grpcmw.Rule) grpcmw.Rules { return grpcmw.Rules{method: rules} }

// open starts serving with rules, after the other interceptors of opts.
func (s *shop) open(rules grpcmw.Rules, opts ...grpc.ServerOption) *shop {
	s.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = listener.Addr().String()
	if s.listen != nil {
		listener = s.listen(listener)
	}
	server := grpc.NewServer(append(opts, grpcmw.ServerOptions(rules)...)...)
	RegisterOrdersServer(server, &s.handlers)
	if err := grpcmw.Check(server, rules); err != nil {
		s.t.Error(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	s.t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
	s.client = s.dial()
	return s
}

func (s *shop) dial(opts ...grpc.DialOption) OrdersClient {
	s.t.Helper()
	return dial(s.t, s.addr, opts...)
}

func dial(t *testing.T, addr string, opts ...grpc.DialOption) OrdersClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return NewOrdersClient(conn)
}

// reply is a response with everything that came with it.
type reply struct {
	*Receipt
	err             error
	header, trailer metadata.MD
}

// call calls Pay; md are pairs.
func (s *shop) call(id string, md ...string) reply {
	s.t.Helper()
	return ask(s.t.Context(), s.client.Pay, &Order{Id: id}, md...)
}

type unary func(context.Context, *Order, ...grpc.CallOption) (*Receipt, error)

func ask(ctx context.Context, method unary, o *Order, md ...string) (r reply) {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, md...), soon)
	defer cancel()
	r.Receipt, r.err = method(ctx, o, grpc.Header(&r.header), grpc.Trailer(&r.trailer))
	return r
}

// refused checks that the reply is such a refusal, without headers, and that
// its trailer and details agree.
func (r reply) refused(t *testing.T, code codes.Code, reason string) *errdetails.ErrorInfo {
	t.Helper()
	info, _ := refusal(t, r.err, code, reason)
	if len(r.header) != 0 {
		t.Errorf("headers were sent: %v", r.header)
	}
	return info
}

func refusal(t *testing.T, err error, code codes.Code, reason string) (info *errdetails.ErrorInfo, pause time.Duration) {
	t.Helper()
	s := status.Convert(err)
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.RetryInfo:
			pause = d.GetRetryDelay().AsDuration()
		}
	}
	if s.Code() != code || info.GetReason() != reason || info.GetDomain() != grpcmw.Domain || info.GetMetadata()["method"] == "" {
		t.Fatalf("got %v with %v, want %v with %s", err, info, code, reason)
	}
	return info, pause
}

// is checks that the reply is this text.
func (r reply) is(t *testing.T, text string) {
	t.Helper()
	if r.err != nil || r.GetText() != text {
		t.Errorf("got %q, %v; want %q", r.GetText(), r.err, text)
	}
}

// replayed reports whether the reply is marked as a replay.
func (r reply) replayed() bool {
	return strings.Join(r.trailer.Get("idempotent-replayed"), ",") == "true"
}

// isFree reports whether key is free.
func (s *shop) isFree(key string) bool {
	s.t.Helper()
	lease, err := s.locker.TryAcquire(context.Background(), key)
	if errors.Is(err, core.ErrBusy) {
		return false
	}
	if err != nil {
		s.t.Error(err)
		return false
	}
	if err := lease.Release(context.Background()); err != nil {
		s.t.Error(err)
	}
	return true
}

// hold keeps key taken until the test ends or the returned function is called.
func (s *shop) hold(key string) (release func()) {
	s.t.Helper()
	lease, err := s.locker.Acquire(context.Background(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	release = func() { _ = lease.Release(context.Background()) }
	s.t.Cleanup(release)
	return release
}

func (s *shop) storeFails(err error) { s.store.acquire.Store(&err) }

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so in %v: %s", soon, what)
		}
	}
}

// within receives from ch.
func within[T any](t *testing.T, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(soon):
		t.Fatalf("not so in %v: %s", soon, what)
	}
	return v
}

// ok is a handler that responds with the key of its lease.
func ok(ctx context.Context, o *Order) (*Receipt, error) {
	lease, found := core.LeaseFromContext(ctx)
	if !found {
		return &Receipt{Id: o.GetId(), Text: "no lease"}, nil
	}
	return &Receipt{Id: o.GetId(), Text: lease.Key()}, nil
}

// mustNotRun is a handler that fails the test if it runs.
func mustNotRun(t *testing.T) func(context.Context, *Order) (*Receipt, error) {
	var runs atomic.Int32
	t.Cleanup(func() {
		if n := runs.Load(); n != 0 {
			t.Errorf("the handler ran %d times", n)
		}
	})
	return func(context.Context, *Order) (*Receipt, error) {
		runs.Add(1)
		return &Receipt{}, nil
	}
}

// counting is a handler that responds with the number of its runs.
func counting(n *atomic.Int64) func(context.Context, *Order) (*Receipt, error) {
	return func(_ context.Context, o *Order) (*Receipt, error) {
		run := n.Add(1)
		return &Receipt{Id: o.GetId(), Text: fmt.Sprintf("run %d", run), Charge: 9007199254740993}, nil
	}
}
