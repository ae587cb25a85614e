package connectmw_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"connectrpc.com/connect"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/connectmw"
	"github.com/lockkit/lockkit/grpcmw/internal/orders"
)

func ExampleInterceptor() {
	locks, _ := core.New(memstore.New()) // in production a store that all replicas share
	runs, _ := once.New(locks)
	// caller returns the caller that the authentication has set.
	caller := func(context.Context, string, any) (string, error) { return "acme", nil }
	rules := grpcmw.Rules{orders.Orders_Pay_FullMethodName: {
		grpcmw.Idempotent(runs, caller), grpcmw.Lock(locks, "order", grpcmw.Field("id")),
	}}
	charged := 0
	charge := func(ctx context.Context, r *connect.Request[orders.Order]) (*connect.Response[orders.Receipt], error) {
		charged++
		// ctx is done when the client disconnects or the lock is lost.
		lease, _ := core.LeaseFromContext(ctx)
		return connect.NewResponse(&orders.Receipt{Text: fmt.Sprintf("charge %d under %s", charged, lease.Key())}), nil
	}
	mux := http.NewServeMux() // of generated code: mux.Handle(ordersconnect.NewOrdersHandler(…))
	mux.Handle(orders.Orders_Pay_FullMethodName, connect.NewUnaryHandler(orders.Orders_Pay_FullMethodName, charge,
		connect.WithInterceptors(connectmw.Interceptor(rules))))
	server := httptest.NewServer(mux)
	defer server.Close()

	for _, client := range []*connect.Client[orders.Order, orders.Receipt]{
		connect.NewClient[orders.Order, orders.Receipt](server.Client(), server.URL+orders.Orders_Pay_FullMethodName),
		connect.NewClient[orders.Order, orders.Receipt](server.Client(), server.URL+orders.Orders_Pay_FullMethodName, connect.WithGRPCWeb(), connect.WithProtoJSON()),
	} {
		for _, id := range []string{"42", "43"} {
			r := connect.NewRequest(&orders.Order{Id: id})
			r.Header().Set("Idempotency-Key", "7f3c")
			response, err := client.CallUnary(context.Background(), r)
			if err != nil {
				fmt.Println(err)
				continue
			}
			fmt.Println(response.Msg.GetText())
		}
	}
	// Output:
	// charge 1 under order:42
	// failed_precondition: the idempotency key was used for another request
	// charge 1 under order:42
	// failed_precondition: the idempotency key was used for another request
}
