package grpcmw_test

import (
	"context"
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/grpcmw"
)

func ExampleLock() {
	locks, _ := core.New(memstore.New()) // in production a store that all replicas share
	orders := &handlers{OnPay: func(ctx context.Context, _ *Order) (*Receipt, error) {
		// ctx is canceled when the client disconnects or the lock is lost.
		lease, _ := core.LeaseFromContext(ctx)
		return &Receipt{Text: fmt.Sprintf("charged under %s, fenced: %v", lease.Key(), lease.Token() > 0)}, nil
	}}
	client, stop := serve(orders, grpcmw.Rules{
		Orders_Pay_FullMethodName: {grpcmw.Lock(locks, "order", grpcmw.Field("id"))},
	})
	defer stop()

	show(client.Pay(context.Background(), &Order{Id: "42"}))

	// Another process is working on the order.
	lease, _ := locks.Acquire(context.Background(), core.Key("order", "42"))
	show(client.Pay(context.Background(), &Order{Id: "42"}))
	_ = lease.Release(context.Background())
	// Output:
	// charged under order:42, fenced: true
	// Aborted: another call is in progress
}

func ExampleIdempotent() {
	locks, _ := core.New(memstore.New())
	runs, _ := once.New(locks)
	charged := 0
	orders := &handlers{OnPay: func(context.Context, *Order) (*Receipt, error) {
		charged++
		return &Receipt{Text: fmt.Sprintf("charge %d", charged)}, nil
	}}
	// The caller, set by your authentication.
	caller := func(context.Context, string, any) (string, error) { return "acme", nil }
	client, stop := serve(orders, grpcmw.Rules{Orders_Pay_FullMethodName: {grpcmw.Idempotent(runs, caller)}})
	defer stop()

	ctx := metadata.AppendToOutgoingContext(context.Background(), "idempotency-key", "7f3c")
	show(client.Pay(ctx, &Order{Id: "42"}))
	show(client.Pay(ctx, &Order{Id: "42"})) // for example because the reply was lost
	show(client.Pay(ctx, &Order{Id: "43"}))
	show(client.Pay(context.Background(), &Order{Id: "42"}))
	// Output:
	// charge 1
	// charge 1
	// FailedPrecondition: the idempotency key was used for another request
	// InvalidArgument: the metadata "idempotency-key" is missing
}

// A transfer locks both accounts. Two transfers in opposite directions do not
// deadlock.
func ExampleAlso() {
	locks, _ := core.New(memstore.New())
	orders := &handlers{OnPay: func(ctx context.Context, _ *Order) (*Receipt, error) {
		_, from := core.LeaseOf(ctx, core.Key("account", "a"))
		_, to := core.LeaseOf(ctx, core.Key("account", "b"))
		return &Receipt{Text: fmt.Sprintf("locked: %v and %v", from, to)}, nil
	}}
	client, stop := serve(orders, grpcmw.Rules{Orders_Pay_FullMethodName: {
		grpcmw.Lock(locks, "account", grpcmw.Field("id"), grpcmw.Also(grpcmw.Field("item.sku"))),
	}})
	defer stop()

	show(client.Pay(context.Background(), &Order{Id: "b", Item: &Item{Sku: "a"}}))
	// Output:
	// locked: true and true
}

// A key function returns one key for several spellings of a value.
func ExampleKeyFunc() {
	locks, _ := core.New(memstore.New())
	email := func(_ context.Context, _ string, req any) (string, error) {
		address := strings.ToLower(req.(*Order).GetId())
		if !strings.Contains(address, "@") {
			return "", fmt.Errorf("no e-mail address: %w", core.ErrInvalid)
		}
		return address, nil
	}
	client, stop := serve(&handlers{OnPay: ok}, grpcmw.Rules{Orders_Pay_FullMethodName: {grpcmw.Lock(locks, "signup", email)}})
	defer stop()

	show(client.Pay(context.Background(), &Order{Id: "Ann@Example.com"}))
	show(client.Pay(context.Background(), &Order{Id: "Ann"}))
	// Output:
	// signup:ann@example.com
	// InvalidArgument: the call has no key that can be used
}

// The key of a stream is in its first message or, as here, in metadata. The stream
// holds the lock until its handler returns. The responses of streams are not stored, so
// Idempotent is for unary calls.
func ExampleMetadata() {
	locks, _ := core.New(memstore.New())
	orders := &handlers{OnWatch: func(_ *Order, stream grpc.ServerStreamingServer[Receipt]) error {
		// The context is canceled when the lock is lost.
		lease, _ := core.LeaseFromContext(stream.Context())
		return stream.Send(&Receipt{Text: "watching under " + lease.Key()})
	}}
	client, stop := serve(orders, grpcmw.Rules{
		Orders_Watch_FullMethodName: {grpcmw.Lock(locks, "tenant", grpcmw.Metadata("x-tenant"))},
	})
	defer stop()

	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-tenant", "acme")
	stream, err := client.Watch(ctx, &Order{Id: "42"})
	if err != nil {
		fmt.Println(err)
		return
	}
	show(stream.Recv())
	// Output:
	// watching under tenant:acme
}

func ExampleCheck() {
	locks, _ := core.New(memstore.New())
	lock := grpcmw.Lock(locks, "order", grpcmw.Field("idd"))
	rules := grpcmw.Rules{Orders_Pay_FullMethodName: {lock}, "/shop.Orders/Pay": {lock}}
	server := grpc.NewServer(grpcmw.ServerOptions(rules)...)
	RegisterOrdersServer(server, &handlers{})
	fmt.Println(grpcmw.Check(server, rules))
	// Output:
	// grpcmw: check: /lockkit.grpcmw.test.Orders/Pay: field "idd": idd is no field of lockkit.grpcmw.test.Order: lockkit: invalid argument
	// grpcmw: check: /shop.Orders/Pay: the server has no such service, it has: lockkit.grpcmw.test.Orders: lockkit: invalid argument
}

// All tries of a call have one idempotency key. The server's hints set the minimum
// pauses.
func ExampleUnaryClientInterceptor() {
	locks, _ := core.New(memstore.New())
	runs, _ := once.New(locks)
	client, stop := serve(&handlers{OnPay: ok}, grpcmw.Rules{
		Orders_Pay_FullMethodName: {grpcmw.Idempotent(runs, grpcmw.AnyCaller()), grpcmw.Lock(locks, "order", grpcmw.Field("id"))},
	}, grpc.WithUnaryInterceptor(grpcmw.UnaryClientInterceptor()))
	defer stop()

	show(client.Pay(context.Background(), &Order{Id: "42"}))
	// Output:
	// order:42
}

func serve(orders *handlers, rules grpcmw.Rules, opts ...grpc.DialOption) (OrdersClient, func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(grpcmw.ServerOptions(rules)...)
	RegisterOrdersServer(server, orders)
	if err := grpcmw.Check(server, rules); err != nil {
		panic(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		panic(err)
	}
	return NewOrdersClient(conn), func() {
		_ = conn.Close()
		server.Stop()
		<-done
	}
}

func show(r *Receipt, err error) {
	if err != nil {
		fmt.Printf("%v: %s\n", status.Code(err), status.Convert(err).Message())
		return
	}
	fmt.Println(r.GetText())
}
