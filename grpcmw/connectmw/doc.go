// Package connectmw runs methods of connectrpc.com/connect under distributed locks, and
// makes them idempotent, by the rules of package grpcmw.
//
//	order := grpcmw.Lock(locks, "order", grpcmw.Field("order.id"))
//	rules := grpcmw.Rules{
//		ordersconnect.OrdersPayProcedure:    {order},
//		ordersconnect.OrdersChargeProcedure: {grpcmw.Idempotent(runs, tenant)},
//	}
//	if err := grpcmw.Audit(connectmw.Services(ordersconnect.OrdersName), rules); err != nil {
//		return err // a misspelled or forgotten method is unguarded
//	}
//	interceptors := connect.WithInterceptors(authenticate, connectmw.Interceptor(rules))
//	mux.Handle(ordersconnect.NewOrdersHandler(orders, interceptors))
//
// The rules, their options and their promises are the same as in grpcmw. The
// documentation of grpcmw lists the responses to a call. This page describes the
// differences.
//
// # One call in any form
//
// Under Idempotent, two requests with one idempotency key are the same call if they
// have the same procedure and message, in any protocol (Connect, gRPC, gRPC-Web), codec
// (binary, JSON) and compression. The stored response is replayed in the form of each
// later request. A service of grpc-go with the same store, scope and methods finds the
// same responses. So while a service moves between grpc-go and connect, calls can be
// sent to servers of both libraries.
//
// # Metadata
//
// Rules get a call's headers as metadata, by their names in lower case:
// grpcmw.Metadata("x-tenant") is the header X-Tenant. Values of names that end in
// "-Bin" are decoded. If a value of such a header is not base64, the header counts as
// missing. The idempotency key is in the header Idempotency-Key.
//
// grpcmw.KeepMetadata stores headers and trailers from the response, from the error's
// Meta and from the handler's CallInfo. A replay has the header and the trailer
// Idempotent-Replayed. A replayed error has Idempotent-Replayed in its Meta.
//
// # Errors
//
// A refusal is a *connect.Error with the code and the details that grpcmw's
// documentation lists. In an outer interceptor, the refusal matches its reason, such as
// core.ErrBusy. The pause before the next try is in a RetryInfo among the details, and
// in Grpc-Retry-Pushback-Ms in the error's Meta. Over the Connect protocol, the header
// Retry-After has the pause too.
//
// Handlers and KeyFuncs return errors of connect, which are sent with their code,
// details and Meta. Errors with a status of grpc-go are sent with their code and
// details. Render is called for neither kind of error. A KeepIf and a Render get
// statuses of grpc-go. The codes of grpc-go and connect are the same.
//
// # Limits
//
// grpc-go's own retry policy tries again only after a response without headers. connect
// sends headers with each response, so that policy has no effect.
// grpcmw.UnaryClientInterceptor and [ClientInterceptor] try again.
//
// For outer interceptors, a replayed response is not a *connect.Response. The
// response's method Any returns the message with its own type.
//
// Messages of codecs other than Protobuf's have no fields and no fingerprint. Idempotent
// refuses them with INTERNAL, and a Lock needs your own KeyFunc.
//
// An HTTP GET can call only methods with NO_SIDE_EFFECTS. Idempotent does not apply to
// such methods, but a Lock does.
//
// About 3 MB of grpc-go are linked into the program, although grpc-go serves nothing.
package connectmw
