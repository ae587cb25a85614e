// Package connectmw puts methods of connectrpc.com/connect under distributed locks, and makes
// them idempotent, by the rules of package grpcmw.
//
//	rules := grpcmw.Rules{
//		ordersconnect.OrdersPayProcedure:    {grpcmw.Lock(locks, "order", grpcmw.Field("order.id"))},
//		ordersconnect.OrdersChargeProcedure: {grpcmw.Idempotent(runs, tenant)},
//	}
//	if err := grpcmw.Audit(connectmw.Services(ordersconnect.OrdersName), rules); err != nil {
//		return err // a typo, or a method that was forgotten, is unguarded
//	}
//	interceptors := connect.WithInterceptors(authenticate, connectmw.Interceptor(rules))
//	mux.Handle(ordersconnect.NewOrdersHandler(orders, interceptors))
//
// The rules, their options and what they promise are those of grpcmw, whose documentation
// says what a call is answered. This package says what differs.
//
// # One call in any form
//
// A call is its procedure and its message, whichever protocol (Connect, gRPC, gRPC-Web), codec
// (binary, JSON) and compression it arrives in. It runs once, and its answer is replayed in
// the form in which it is asked for. A service of grpc-go with the same store, scope and
// methods has the same answers: calls can be sent to either while a service moves.
//
// # Metadata
//
// Rules see a call's headers as metadata, by their names in lower case: grpcmw.Metadata
// ("x-tenant") is the header X-Tenant. Values of names that end in "-Bin" are decoded. The
// idempotency key is in the header Idempotency-Key.
//
// grpcmw.KeepMetadata keeps headers and trailers of the response, of the error's Meta and of
// the handler's CallInfo. Replays are marked by the header and the trailer
// Idempotent-Replayed, an error in its Meta.
//
// # Errors
//
// A refusal is a *connect.Error with the code and the details that grpcmw's documentation
// lists; errors.Is finds its reason, such as core.ErrBusy, in an interceptor outside. When to
// try again stands in a RetryInfo among the details and as Grpc-Retry-Pushback-Ms in the
// error's Meta, over the Connect protocol in the header Retry-After as well.
//
// Handlers and KeyFuncs return errors of connect. The status of grpc-go is taken too, and
// sent with its code and details. A KeepIf and a Render see statuses of grpc-go, whose codes
// are those of connect.
//
// # What is not promised
//
// grpc-go's own retry policy does not try again: it needs a response without headers, and
// connect sends some with each. grpcmw.UnaryClientInterceptor and [ClientInterceptor] do.
//
// A replayed response is no *connect.Response to interceptors outside. They get its message, of
// its own type, by Any.
//
// Messages of codecs other than Protobuf's have no fields and no fingerprint: Idempotent
// refuses them with INTERNAL, and a Lock needs a KeyFunc of yours.
//
// The calls of an HTTP GET are those of methods marked NO_SIDE_EFFECTS. Idempotent passes
// those by, a Lock does not.
//
// grpc-go is linked into the program, about 3 MB, though it serves nothing.
package connectmw
