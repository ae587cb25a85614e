// Package answers is the suite of the responses to callers, for grpcmw and the adapters
// that apply its rules on other servers.
package answers

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/internal/orders"
)

// Serve serves h behind rules and the interceptors outside of them until the test is done,
// and returns a client of it, whose unary methods the suite calls. Handlers set metadata by
// grpc.SetHeader and grpc.SetTrailer, and return errors with the status of grpc-go.
type Serve func(t *testing.T, h orders.OrdersServer, rules grpcmw.Rules, outer ...Outer) orders.OrdersClient

// Outer is an interceptor outside of the rules.
type Outer func(ctx context.Context, next func(context.Context) (any, error)) (any, error)

// Run runs the whole suite.
func Run(t *testing.T, serve Serve) {
	for name, cases := range map[string]func(*testing.T, Serve){
		"Commit": Commit, "CommitRefused": CommitRefused, "KeepIf": KeepIf, "KeepMetadata": KeepMetadata, "Kept": Kept,
		"NotFinal": NotFinal, "Refusals": Refusals, "Repeated": Repeated, "Withdraw": Withdraw,
	} {
		t.Run(name, func(t *testing.T) { cases(t, serve) })
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

// shop is a service with its own locker and store.
type shop struct {
	orders.UnimplementedOrdersServer
	t                 *testing.T
	serve             Serve
	store             *stub
	locker            *core.Locker
	client            orders.OrdersClient
	pay, refund, show func(context.Context, *orders.Order) (*orders.Receipt, error)
}

func (s *shop) Pay(ctx context.Context, o *orders.Order) (*orders.Receipt, error) {
	return s.pay(ctx, o)
}

func (s *shop) Refund(ctx context.Context, o *orders.Order) (*orders.Receipt, error) {
	return s.refund(ctx, o)
}

func (s *shop) Show(ctx context.Context, o *orders.Order) (*orders.Receipt, error) {
	return s.show(ctx, o)
}

// newShop returns a shop in memory whose methods respond with the key of their lease.
func newShop(t *testing.T, serve Serve) *shop {
	t.Helper()
	s := &shop{t: t, serve: serve, store: &stub{Store: memstore.New()}, pay: ok, refund: ok, show: ok}
	return s.lockIn(s.store)
}

func (s *shop) lockIn(store core.Store) *shop {
	s.t.Helper()
	locker, err := core.New(store)
	if err != nil {
		s.t.Fatal(err)
	}
	s.locker = locker
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

// open starts serving.
func (s *shop) open(rules grpcmw.Rules, outer ...Outer) {
	s.t.Helper()
	s.client = s.serve(s.t, s, rules, outer...)
}

// reply is a response with everything that came with it.
type reply struct {
	*orders.Receipt
	err             error
	header, trailer metadata.MD
}

// call calls Pay; md are pairs.
func (s *shop) call(id string, md ...string) reply {
	s.t.Helper()
	return ask(s.t.Context(), s.client.Pay, &orders.Order{Id: id}, md...)
}

type unary func(context.Context, *orders.Order, ...grpc.CallOption) (*orders.Receipt, error)

// ofTheConnection is metadata that servers add to each response.
var ofTheConnection = []string{"accept-encoding", "content-encoding", "content-length", "content-type", "date", "grpc-accept-encoding", "trailer", "vary"}

func ask(ctx context.Context, method unary, o *orders.Order, md ...string) (r reply) {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, md...), soon)
	defer cancel()
	r.Receipt, r.err = method(ctx, o, grpc.Header(&r.header), grpc.Trailer(&r.trailer))
	for _, name := range ofTheConnection {
		r.header.Delete(name)
	}
	return r
}

// refused checks that the reply is such a refusal, without headers, and that its
// trailer and details agree.
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
func ok(ctx context.Context, o *orders.Order) (*orders.Receipt, error) {
	lease, found := core.LeaseFromContext(ctx)
	if !found {
		return &orders.Receipt{Id: o.GetId(), Text: "no lease"}, nil
	}
	return &orders.Receipt{Id: o.GetId(), Text: lease.Key()}, nil
}

// counting is a handler that responds with the number of its runs.
func counting(n *atomic.Int64) func(context.Context, *orders.Order) (*orders.Receipt, error) {
	return func(_ context.Context, o *orders.Order) (*orders.Receipt, error) {
		run := n.Add(1)
		return &orders.Receipt{Id: o.GetId(), Text: fmt.Sprintf("run %d", run), Charge: 9007199254740993}, nil
	}
}

// attemptOf is a handler that responds with the number of its attempt.
func attemptOf(ctx context.Context, _ *orders.Order) (*orders.Receipt, error) {
	n, _ := once.AttemptFromContext(ctx)
	return &orders.Receipt{Text: fmt.Sprint("attempt ", n)}, nil
}

// mustNotRun is a handler that fails the test if it runs.
func mustNotRun(t *testing.T) func(context.Context, *orders.Order) (*orders.Receipt, error) {
	var runs atomic.Int32
	t.Cleanup(func() {
		if n := runs.Load(); n != 0 {
			t.Errorf("the handler ran %d times", n)
		}
	})
	return func(context.Context, *orders.Order) (*orders.Receipt, error) {
		runs.Add(1)
		return &orders.Receipt{}, nil
	}
}

// recovering turns panics into INTERNAL.
func recovering(ctx context.Context, next func(context.Context) (any, error)) (_ any, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = status.Errorf(codes.Internal, "recovered: %v", reason)
		}
	}()
	return next(ctx)
}

// reasons collects the errors that an outer interceptor sees.
type reasons struct {
	mu   sync.Mutex
	list []error
}

func (r *reasons) watch(ctx context.Context, next func(context.Context) (any, error)) (any, error) {
	reply, err := next(ctx)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.list = append(r.list, err)
	}
	return reply, err
}

func (r *reasons) last() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == 0 {
		return nil
	}
	return r.list[len(r.list)-1]
}

// stub is a store whose answers a test can replace.
type stub struct {
	*memstore.Store
	acquire  atomic.Pointer[error] // the error of Acquire
	extend   atomic.Pointer[error] // the error of Extend
	attempts atomic.Int32
	releases atomic.Int32
}

func (s *stub) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	s.attempts.Add(1)
	if err := s.acquire.Load(); err != nil {
		return store.Grant{}, *err
	}
	return s.Store.Acquire(ctx, c)
}

func (s *stub) Release(ctx context.Context, c store.Claim) error {
	s.releases.Add(1)
	return s.Store.Release(ctx, c)
}

func (s *stub) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	if err := s.extend.Load(); err != nil {
		answers := make([]store.Extension, len(claims))
		for i := range answers {
			answers[i].Err = *err
		}
		return answers
	}
	return s.Store.Extend(ctx, claims)
}
