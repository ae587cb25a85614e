// Package answers is a test suite for the responses to callers. It tests grpcmw and the
// adapters that apply grpcmw's rules to servers of other libraries. The tests of grpcmw
// also use the type Shop as their service.
package answers

import (
	"context"
	"errors"
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

// Serve serves h with rules and outer interceptors until the test is done. It returns a
// client, whose unary methods the suite calls. Handlers set metadata by grpc.SetHeader
// and grpc.SetTrailer, and return errors with the status of grpc-go.
type Serve func(t *testing.T, h orders.OrdersServer, rules grpcmw.Rules, outer ...Outer) orders.OrdersClient

// Outer is an outer interceptor.
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

// IdempotencyKey is the name of the metadata with a call's idempotency key. Pushback is
// the name of the trailer with the pause before the next try.
const (
	IdempotencyKey = "idempotency-key"
	Pushback       = "grpc-retry-pushback-ms"
)

// Soon is a generous deadline for short operations on a busy machine.
const Soon = 20 * time.Second

// Handlers is a service. A test can set each of its methods.
type Handlers struct {
	orders.UnimplementedOrdersServer
	OnPay, OnRefund, OnShow func(context.Context, *orders.Order) (*orders.Receipt, error)

	OnWatch  func(*orders.Order, grpc.ServerStreamingServer[orders.Receipt]) error
	OnUpload func(grpc.ClientStreamingServer[orders.Order, orders.Receipt]) error
	OnChat   func(grpc.BidiStreamingServer[orders.Order, orders.Receipt]) error
}

// Pay calls OnPay.
func (h *Handlers) Pay(ctx context.Context, o *orders.Order) (*orders.Receipt, error) {
	return h.OnPay(ctx, o)
}

// Refund calls OnRefund.
func (h *Handlers) Refund(ctx context.Context, o *orders.Order) (*orders.Receipt, error) {
	return h.OnRefund(ctx, o)
}

// Show calls OnShow.
func (h *Handlers) Show(ctx context.Context, o *orders.Order) (*orders.Receipt, error) {
	return h.OnShow(ctx, o)
}

// Watch calls OnWatch.
func (h *Handlers) Watch(o *orders.Order, s grpc.ServerStreamingServer[orders.Receipt]) error {
	return h.OnWatch(o, s)
}

// Upload calls OnUpload.
func (h *Handlers) Upload(s grpc.ClientStreamingServer[orders.Order, orders.Receipt]) error {
	return h.OnUpload(s)
}

// Chat calls OnChat.
func (h *Handlers) Chat(s grpc.BidiStreamingServer[orders.Order, orders.Receipt]) error {
	return h.OnChat(s)
}

// Shop is a service with its own locker and store.
type Shop struct {
	Handlers
	T      *testing.T
	Store  *Stub // nil after NewShopOn
	Locker *core.Locker
	Client orders.OrdersClient // set by Open

	serve Serve // nil if the test serves the shop itself
}

// NewShop returns a shop with a store in memory. Its unary methods respond with the key
// of their lease. A test that serves the shop itself passes a nil serve, and does not
// call Open.
func NewShop(t *testing.T, serve Serve, opts ...core.Option) *Shop {
	t.Helper()
	stub := &Stub{Store: memstore.New()}
	s := NewShopOn(t, stub, opts...)
	s.Store, s.serve = stub, serve
	return s
}

// NewShopOn returns a shop with store as its store. The test serves the shop itself.
func NewShopOn(t *testing.T, store core.Store, opts ...core.Option) *Shop {
	t.Helper()
	return (&Shop{T: t, Handlers: Handlers{OnPay: OK, OnRefund: OK, OnShow: OK}}).LockIn(store, opts...)
}

// LockIn gives the shop a Locker with this store.
func (s *Shop) LockIn(store core.Store, opts ...core.Option) *Shop {
	s.T.Helper()
	locker, err := core.New(store, opts...)
	if err != nil {
		s.T.Fatal(err)
	}
	s.Locker = locker
	s.T.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Soon)
		defer cancel()
		if err := locker.Close(ctx); err != nil {
			s.T.Error(err)
		}
	})
	return s
}

// Lock returns a Lock whose key is the field id.
func (s *Shop) Lock(opts ...grpcmw.Option) grpcmw.Rule {
	return grpcmw.Lock(s.Locker, "order", grpcmw.Field("id"), opts...)
}

// Runs returns a Once that stores its runs in the shop's store.
func (s *Shop) Runs(opts ...once.Option) *once.Once {
	s.T.Helper()
	o, err := once.New(s.Locker, opts...)
	if err != nil {
		s.T.Fatal(err)
	}
	if s.Store != nil {
		// This leaves out the call by which once.New checks whether the store has
		// records.
		s.Store.Attempts.Store(0)
	}
	return o
}

// On returns Rules for one method.
func On(method string, rules ...grpcmw.Rule) grpcmw.Rules { return grpcmw.Rules{method: rules} }

// Open serves the shop, and sets its Client.
func (s *Shop) Open(rules grpcmw.Rules, outer ...Outer) {
	s.T.Helper()
	s.Client = s.serve(s.T, s, rules, outer...)
}

// Reply is a response with its metadata.
type Reply struct {
	*orders.Receipt
	Err             error
	Header, Trailer metadata.MD
}

// Call calls Pay. md has pairs of names and values.
func (s *Shop) Call(id string, md ...string) Reply {
	s.T.Helper()
	// With grpc-go, keep all metadata, because any header shows that headers were sent.
	if s.serve == nil {
		return Ask(s.T.Context(), s.Client.Pay, &orders.Order{Id: id}, md...)
	}
	return ask(s.T.Context(), s.Client.Pay, &orders.Order{Id: id}, md...)
}

// Unary is a unary method of a client.
type Unary func(context.Context, *orders.Order, ...grpc.CallOption) (*orders.Receipt, error)

// ofTheConnection is metadata that servers add to responses.
var ofTheConnection = []string{"accept-encoding", "content-encoding", "content-length", "content-type", "date", "grpc-accept-encoding", "trailer", "vary"}

// Ask calls method. md has pairs of names and values.
func Ask(ctx context.Context, method Unary, o *orders.Order, md ...string) (r Reply) {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, md...), Soon)
	defer cancel()
	r.Receipt, r.Err = method(ctx, o, grpc.Header(&r.Header), grpc.Trailer(&r.Trailer))
	return r
}

// ask calls method as Ask does, and removes the metadata of the connection.
func ask(ctx context.Context, method Unary, o *orders.Order, md ...string) Reply {
	r := Ask(ctx, method, o, md...)
	for _, name := range ofTheConnection {
		r.Header.Delete(name)
	}
	return r
}

// Refused fails the test unless the reply is a refusal with this code and reason, and
// without headers.
func (r Reply) Refused(t *testing.T, code codes.Code, reason string) *errdetails.ErrorInfo {
	t.Helper()
	info, _ := RefusalOf(t, r.Err, code, reason)
	if len(r.Header) != 0 {
		t.Errorf("headers were sent: %v", r.Header)
	}
	return info
}

// RefusalOf returns the details of a refusal. It fails the test unless err is a refusal
// with this code and reason.
func RefusalOf(t *testing.T, err error, code codes.Code, reason string) (info *errdetails.ErrorInfo, pause time.Duration) {
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

// Is fails the test unless the reply is a success with this text.
func (r Reply) Is(t *testing.T, text string) {
	t.Helper()
	if r.Err != nil || r.GetText() != text {
		t.Errorf("got %q, %v; want %q", r.GetText(), r.Err, text)
	}
}

// Replayed reports whether the reply is marked as a replay.
func (r Reply) Replayed() bool {
	return strings.Join(r.Trailer.Get("idempotent-replayed"), ",") == "true"
}

// Hold holds key until the test is done or the returned function is called.
func (s *Shop) Hold(key string) (release func()) {
	s.T.Helper()
	lease, err := s.Locker.Acquire(context.Background(), key)
	if err != nil {
		s.T.Fatal(err)
	}
	release = func() { _ = lease.Release(context.Background()) }
	s.T.Cleanup(release)
	return release
}

// StoreFails makes each Acquire of the store fail with err.
func (s *Shop) StoreFails(err error) { s.Store.AcquireFails.Store(&err) }

// Eventually polls until ok returns true.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(Soon); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so in %v: %s", Soon, what)
		}
	}
}

// Within receives from ch.
func Within[T any](t *testing.T, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(Soon):
		t.Fatalf("not so in %v: %s", Soon, what)
	}
	return v
}

// OK is a handler that responds with the key of its lease.
func OK(ctx context.Context, o *orders.Order) (*orders.Receipt, error) {
	lease, found := core.LeaseFromContext(ctx)
	if !found {
		return &orders.Receipt{Id: o.GetId(), Text: "no lease"}, nil
	}
	return &orders.Receipt{Id: o.GetId(), Text: lease.Key()}, nil
}

// Counting returns a handler that responds with the number of its run.
func Counting(n *atomic.Int64) func(context.Context, *orders.Order) (*orders.Receipt, error) {
	return func(_ context.Context, o *orders.Order) (*orders.Receipt, error) {
		run := n.Add(1)
		return &orders.Receipt{Id: o.GetId(), Text: fmt.Sprintf("run %d", run), Charge: 9007199254740993}, nil
	}
}

func attemptOf(ctx context.Context, _ *orders.Order) (*orders.Receipt, error) {
	n, _ := once.AttemptFromContext(ctx)
	return &orders.Receipt{Text: fmt.Sprint("attempt ", n)}, nil
}

// MustNotRun returns a handler that fails the test if it runs.
func MustNotRun(t *testing.T) func(context.Context, *orders.Order) (*orders.Receipt, error) {
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

// recovering is an outer interceptor that turns panics into errors with code INTERNAL.
func recovering(ctx context.Context, next func(context.Context) (any, error)) (_ any, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = status.Errorf(codes.Internal, "recovered: %v", reason)
		}
	}()
	return next(ctx)
}

// Reasons collects the errors that its interceptor Watch gets.
type Reasons struct {
	mu   sync.Mutex
	list []error
}

// Watch is an outer interceptor.
func (r *Reasons) Watch(ctx context.Context, next func(context.Context) (any, error)) (any, error) {
	reply, err := next(ctx)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.list = append(r.list, err)
	}
	return reply, err
}

// Last returns the last error, or nil.
func (r *Reasons) Last() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == 0 {
		return nil
	}
	return r.list[len(r.list)-1]
}

// Stub is a store whose Acquire and Extend a test can make fail. It counts the calls of
// Acquire and Release.
type Stub struct {
	*memstore.Store
	AcquireFails atomic.Pointer[error] // the error of Acquire
	ExtendFails  atomic.Pointer[error] // the error of Extend
	Unheard      atomic.Bool           // the replies of Acquire are lost
	Attempts     atomic.Int32
	Releases     atomic.Int32
}

func (s *Stub) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	s.Attempts.Add(1)
	if err := s.AcquireFails.Load(); err != nil {
		return store.Grant{}, *err
	}
	g, err := s.Store.Acquire(ctx, c)
	if s.Unheard.Load() {
		return store.Grant{}, errors.New("the reply was lost")
	}
	return g, err
}

func (s *Stub) Release(ctx context.Context, c store.Claim) error {
	s.Releases.Add(1)
	return s.Store.Release(ctx, c)
}

func (s *Stub) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	if err := s.ExtendFails.Load(); err != nil {
		answers := make([]store.Extension, len(claims))
		for i := range answers {
			answers[i].Err = *err
		}
		return answers
	}
	return s.Store.Extend(ctx, claims)
}
