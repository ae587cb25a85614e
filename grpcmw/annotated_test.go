package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/lockkitpb"
)

// tills is the annotated service. It calls the handlers of a shop.
type tills struct {
	UnimplementedTillsServer
	*handlers
}

func (s *tills) Pay(ctx context.Context, o *Order) (*Receipt, error)      { return s.OnPay(ctx, o) }
func (s *tills) Transfer(ctx context.Context, o *Order) (*Receipt, error) { return s.OnPay(ctx, o) }
func (s *tills) Settle(ctx context.Context, o *Order) (*Receipt, error)   { return s.OnPay(ctx, o) }
func (s *tills) Ping(ctx context.Context, o *Order) (*Receipt, error)     { return s.OnPay(ctx, o) }
func (s *tills) Peek(ctx context.Context, o *Order) (*Receipt, error)     { return s.OnShow(ctx, o) }
func (s *tills) Void(ctx context.Context, o *Order) (*Receipt, error)     { return s.OnPay(ctx, o) }
func (s *tills) Show(ctx context.Context, o *Order) (*Receipt, error)     { return s.OnShow(ctx, o) }
func (s *tills) Watch(o *Order, ss grpc.ServerStreamingServer[Receipt]) error {
	return s.OnWatch(o, ss)
}

// annotated returns the rules of orders.proto.
func (s *shop) annotated(opts ...grpcmw.AnnotatedOption) grpcmw.Rules {
	s.T.Helper()
	rules, err := grpcmw.Annotated(s.Locker, append([]grpcmw.AnnotatedOption{grpcmw.Runs(s.Runs(), grpcmw.AnyCaller())}, opts...)...)
	if err != nil {
		s.T.Fatal(err)
	}
	return rules
}

func (s *shop) openTills(rules grpcmw.Rules) TillsClient {
	s.T.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.T.Fatal(err)
	}
	server := grpc.NewServer(grpcmw.ServerOptions(rules)...)
	RegisterTillsServer(server, &tills{handlers: &s.Handlers})
	if err := grpcmw.Check(server, rules); err != nil {
		s.T.Error(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		if err := <-done; err != nil {
			s.T.Error(err)
		}
	})
	return NewTillsClient(conn)
}

func TestAnnotated(t *testing.T) {
	t.Parallel()

	t.Run("annotated locks", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.OnPay = func(ctx context.Context, o *Order) (*Receipt, error) {
			inner, _ := core.LeaseFromContext(ctx)
			if left := time.Until(inner.Deadline()); inner.Key() != "till:7:s" || left > 7*time.Second || left < 0 || s.isFree("order:5") {
				t.Errorf("%s lasts for %v, order is free: %v", inner.Key(), left, s.isFree("order:5"))
			}
			return ok(ctx, o)
		}
		client, answer := s.openTills(s.annotated()), make(chan reply, 1)
		o := &Order{Id: "5", Kind: Kind_KIND_CARD, Item: &Item{Sku: "s"}}
		ask(t.Context(), client.Pay, o, key, "a").Is(t, "till:7:s")
		release := s.Hold("till:7:s")
		before := s.Store.Attempts.Load()
		go func() { answer <- ask(t.Context(), client.Pay, o, key, "b") }()
		eventually(t, "the call waits for the inner lock", func() bool { return s.Store.Attempts.Load() > before+3 })
		// The outer lock is busy.
		ask(t.Context(), client.Pay, o, key, "c").Refused(t, codes.Aborted, grpcmw.ReasonBusy)
		release()
		within(t, "the call is answered", answer).Is(t, "till:7:s")
	})
	t.Run("shared lock", func(t *testing.T) {
		t.Parallel()
		s, other := newShop(t), "b"
		client := s.openTills(s.annotated())
		for _, k := range []string{"account:a", "account:b"} {
			shared, err := s.Locker.Acquire(t.Context(), k, core.Shared())
			if err != nil {
				t.Fatal(err)
			}
			ask(t.Context(), client.Transfer, &Order{Id: "a", Coupon: &other}).Is(t, "account:a")
			if err := shared.Release(t.Context()); err != nil {
				t.Error(err)
			}
			release := s.Hold(k)
			ask(t.Context(), client.Transfer, &Order{Id: "a", Coupon: &other}).Refused(t, codes.Aborted, grpcmw.ReasonBusy)
			release()
		}
	})
	t.Run("idempotent calls", func(t *testing.T) {
		t.Parallel()
		s, n := newShop(t), 0
		s.OnPay = func(ctx context.Context, o *Order) (*Receipt, error) {
			n++
			if o.GetFlag() {
				panic("the process dies")
			}
			return &Receipt{Text: fmt.Sprint("run ", n)}, nil
		}
		rules := s.annotated()
		dies := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			defer func() { _ = recover() }()
			return next(ctx, req)
		}
		client := s.openTills(rules)
		o := &Order{Id: "5", Item: &Item{Sku: "s"}}
		ask(t.Context(), client.Pay, o, key, "a").Is(t, "run 1")
		release := s.Hold("order:5") // a replay does not need the lock
		if r := ask(t.Context(), client.Pay, o, key, "a"); !r.Replayed() || r.GetText() != "run 1" {
			t.Errorf("got %v", r)
		}
		release()
		ask(t.Context(), client.Pay, o).Refused(t, codes.InvalidArgument, grpcmw.ReasonKeyInvalid)
		ask(t.Context(), client.Settle, &Order{Id: "b"}).Is(t, "run 2")
		ask(t.Context(), client.Settle, &Order{Id: "b"}).Is(t, "run 2")
		// A call that died midway does not run again.
		i := grpcmw.UnaryServerInterceptor(rules)
		call := func() error {
			_, err := dies(grpc.NewContextWithServerTransportStream(t.Context(), transport{}), &Order{Id: "c", Flag: true}, nil, func(ctx context.Context, req any) (any, error) {
				return i(ctx, req, &grpc.UnaryServerInfo{FullMethod: Tills_Settle_FullMethodName}, func(ctx context.Context, req any) (any, error) {
					return s.OnPay(ctx, req.(*Order))
				})
			})
			return err
		}
		if err := call(); err != nil {
			t.Error(err)
		}
		refusal(t, call(), codes.FailedPrecondition, grpcmw.ReasonIndeterminate)
	})
	t.Run("stream and method without effects", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.OnWatch = func(_ *Order, out grpc.ServerStreamingServer[Receipt]) error {
			r, err := ok(out.Context(), &Order{})
			return errors.Join(err, out.Send(r))
		}
		client := s.openTills(s.annotated())
		ask(t.Context(), client.Peek, &Order{Id: "5"}).Is(t, "order:5")
		ask(t.Context(), client.Show, &Order{Id: "5"}).Is(t, "no lease")
		ask(t.Context(), client.Ping, &Order{Id: "5"}).Is(t, "no lease")
		watch := func() (*Receipt, error) {
			in, err := client.Watch(t.Context(), &Order{Id: "5"})
			if err != nil {
				return nil, err
			}
			return in.Recv()
		}
		if r, err := watch(); err != nil || r.GetText() != "order:5" {
			t.Errorf("got %v, %v", r, err)
		}
		eventually(t, "the stream releases the key", func() bool { return s.isFree("order:5") })
		s.Hold("order:5")
		_, err := watch()
		refusal(t, err, codes.Aborted, grpcmw.ReasonBusy)
	})
	t.Run("options and rules in Go", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.OnPay = func(ctx context.Context, o *Order) (*Receipt, error) {
			inner, _ := core.LeaseFromContext(ctx)
			if left := time.Until(inner.Deadline()); left < 8*time.Second && inner.Key() == "account:5" || left > 7*time.Second && inner.Key() == "till:0:s" {
				t.Errorf("%s lasts for %v", inner.Key(), left)
			}
			return ok(ctx, o)
		}
		rules := s.annotated(
			grpcmw.Locks(grpcmw.Acquire(core.TTL(time.Minute))),
			grpcmw.Runs(s.Runs(), grpcmw.AnyCaller(), grpcmw.Key(grpcmw.Field("id"))),
		)
		maps.Copy(rules, grpcmw.Rules{Tills_Watch_FullMethodName: {grpcmw.None()}})
		client, other := s.openTills(rules), "6"
		s.OnWatch = func(_ *Order, out grpc.ServerStreamingServer[Receipt]) error { return out.Send(&Receipt{Text: "ran"}) }
		// The idempotency key is in the field id.
		ask(t.Context(), client.Pay, &Order{Id: "5", Item: &Item{Sku: "s"}}).Is(t, "till:0:s")
		ask(t.Context(), client.Transfer, &Order{Id: "5", Coupon: &other}).Is(t, "account:5")
		s.Hold("order:5")
		in, err := client.Watch(t.Context(), &Order{Id: "5"})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := in.Recv(); err != nil || r.GetText() != "ran" {
			t.Errorf("got %v, %v", r, err)
		}
	})
	t.Run("methods without rules", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		got := slices.Sorted(maps.Keys(s.annotated()))
		want := []string{
			Tills_Pay_FullMethodName, Tills_Peek_FullMethodName, Tills_Settle_FullMethodName, Tills_Transfer_FullMethodName, Tills_Watch_FullMethodName,
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// guardOf returns a file with a method that has the guard.
func guardOf(t *testing.T, stream bool, guard *lockkitpb.Guard) *protoregistry.Files {
	t.Helper()
	options := new(descriptorpb.MethodOptions)
	proto.SetExtension(options, lockkitpb.E_Guard, guard)
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("a.proto"), Package: proto.String("a"), Syntax: proto.String("proto3"), Dependency: []string{"orders.proto"},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("B"), Method: []*descriptorpb.MethodDescriptorProto{{
			Name: proto.String("C"), ServerStreaming: &stream, Options: options,
			InputType: proto.String(".lockkit.grpcmw.test.Order"), OutputType: proto.String(".lockkit.grpcmw.test.Receipt"),
		}}}},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	files := new(protoregistry.Files)
	if err := files.RegisterFile(file); err != nil {
		t.Fatal(err)
	}
	return files
}

func TestBadAnnotations(t *testing.T) {
	t.Parallel()
	locks, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	runs, err := once.New(locks)
	if err != nil {
		t.Fatal(err)
	}
	type (
		lock       = lockkitpb.Lock
		idempotent = lockkitpb.Idempotent
		guard      = lockkitpb.Guard
	)
	id := []string{"id"}
	on := func(l *lock) *guard {
		if l.Name == "" {
			l.Name = "order"
		}
		if l.Field == nil {
			l.Field = id
		}
		return &guard{Lock: []*lock{{Name: "first", Field: id}, l}}
	}
	later := func(m proto.Message) {
		m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	}
	laterGuard, laterLock, laterIdempotent := on(&lock{}), on(&lock{}), &guard{Idempotent: &idempotent{}}
	later(laterGuard)
	later(laterLock.Lock[1])
	later(laterIdempotent.Idempotent)

	for want, g := range map[string]*guard{
		"the guard needs either none":                  {},
		"none, or lock":                                {None: true, Lock: []*lock{{Name: "order", Field: id}}},
		"none, or lock or idempotent":                  {None: true, Idempotent: &idempotent{}},
		"C: it has a field that this version":          laterGuard,
		"lock[1]: it has a field that this":            laterLock,
		"idempotent: it has a field that this":         laterIdempotent,
		`lock[1]: name "a:b" is not`:                   on(&lock{Name: "a:b"}),
		`lock[0]: name "" is not`:                      {Lock: []*lock{{Field: id}}},
		"lock[0]: field is missing":                    {Lock: []*lock{{Name: "order"}}},
		`lock[1]: field: field "idd": idd is no field`: on(&lock{Field: []string{"id", "idd"}}),
		`lock[1]: field: field "": `:                   on(&lock{Field: []string{""}}),
		`lock[1]: field: field "item": item is a mess`: on(&lock{Field: []string{"item"}}),
		`lock[1]: also: field "tags": tags is a list`:  on(&lock{Also: []string{"coupon", "tags"}}),
		"lock[1]: wait: ":                              on(&lock{Wait: &durationpb.Duration{Seconds: -1}}),
		"lock[1]: wait: proto":                         on(&lock{Wait: &durationpb.Duration{Nanos: 1e9}}),
		"lock[1]: ttl: ":                               on(&lock{Ttl: &durationpb.Duration{}}),
		"lock[1]: max_hold: ":                          on(&lock{MaxHold: &durationpb.Duration{Seconds: -1}}),
		`idempotent: field: field "rid": rid is no`:    {Idempotent: &idempotent{Field: "rid"}},
		"idempotent: retain: proto":                    {Idempotent: &idempotent{Retain: &durationpb.Duration{Nanos: -1, Seconds: 1}}},
		"idempotent: once: new: Retain 0 s is out":     {Idempotent: &idempotent{Retain: &durationpb.Duration{}}},
	} {
		got, err := grpcmw.AnnotatedIn(guardOf(t, false, g), locks, grpcmw.Runs(runs, grpcmw.AnyCaller()))
		if !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "/a.B/C: ") || got != nil {
			t.Errorf("got %v, %v; want %q", got, err, want)
		}
	}
	wants := func(err, sentinel error, want string) {
		t.Helper()
		if !errors.Is(err, sentinel) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %v with %q", err, sentinel, want)
		}
	}
	_, err = grpcmw.AnnotatedIn(guardOf(t, true, &guard{Idempotent: &idempotent{}}), locks, grpcmw.Runs(runs, grpcmw.AnyCaller()))
	wants(err, core.ErrInvalid, "/a.B/C: idempotent: a stream has no response")
	_, err = grpcmw.AnnotatedIn(guardOf(t, false, &guard{Idempotent: &idempotent{}}), locks)
	wants(err, core.ErrInvalid, "/a.B/C: idempotent: no Once stores responses, see Runs")
	_, err = grpcmw.Annotated(nil)
	wants(err, core.ErrInvalid, "nil")
	_, err = grpcmw.Annotated(locks, nil)
	wants(err, core.ErrInvalid, "nil")
	quorum, err := redlock.New([]core.Store{memstore.New(), memstore.New(), memstore.New()})
	if err != nil {
		t.Fatal(err)
	}
	unfair, err := core.New(quorum)
	if err != nil {
		t.Fatal(err)
	}
	_, err = grpcmw.AnnotatedIn(guardOf(t, false, on(&lock{Fair: true})), unfair)
	wants(err, core.ErrUnsupported, "/a.B/C: lock[1]: fair: ")
	panics(t, "the Once is nil", func() { grpcmw.Runs(nil, grpcmw.AnyCaller()) })
	panics(t, "the scope is nil", func() { grpcmw.Runs(runs, nil) })
	panics(t, "an option is nil", func() { grpcmw.Locks(nil) })
	panics(t, "Detached is an option of Idemp", func() { grpcmw.Locks(grpcmw.Detached()) })
}
