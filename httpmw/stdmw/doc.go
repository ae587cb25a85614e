// Package stdmw runs handlers of net/http under distributed locks, and replays the
// first response to repeated requests, as httpmw does for gin:
//
//	pay := stdmw.Lock(locker, "order", stdmw.Path("id"))
//	mux.Handle("POST /orders/{id}/pay", pay(handler))
//
// Requests to pay order 42 now run one at a time, on whichever replica they arrive. A
// second click during the first request gets 409, and does not run the handler. The
// handler finds its lease, which has the fencing token, by
// core.LeaseFromContext(r.Context()). That context is canceled when the lease is lost.
// With [Idempotent], a client that got no response repeats its request under the same
// Idempotency-Key, and gets the first response:
//
//	once := stdmw.Idempotent(runs, account)
//	mux.Handle("POST /orders/{id}/pay", once(pay(handler)))
//
// The documentation of httpmw also applies to stdmw. It describes the rules of keys for
// the clients of a service, the stored responses, the refusals, and the order of
// middlewares. httpmw and stdmw share one implementation. Each package replays the
// responses that the other package has stored. This page describes the differences.
//
// A handler marks a response of 200 that reports a failure by once.NotFinal. The
// response is sent but not stored, so the client can repeat the request:
//
//	if receipt.Declined {
//		once.NotFinal(r.Context())
//	}
//
// A service that passes its client's Idempotency-Key on to another service puts its own
// name into the scope. With the same store and scope, each such call otherwise gets
// 409, because its key is in progress:
//
//	billing := func(*http.Request) (string, error) { return "billing", nil }
//	stdmw.Idempotent(runs, stdmw.Join(billing, account))
//
// # Frameworks
//
// Lock and Idempotent return a func(http.Handler) http.Handler. chi takes that type,
// and echo takes it through echo.WrapMiddleware. Wrap the handlers of routes, and not
// the mux. Outside the mux there are no path parameters yet. A request that matches no
// route is then refused for its missing key, instead of getting 404.
//
// [Path] reads http.Request.PathValue, which http.ServeMux and chi set. chi does not
// decode unnecessary escapes of a path. For example, the parameter of /orders/4%32 is
// 4%32, as in chi.URLParam, and not 42. For echo, an outer middleware sets the path
// values:
//
//	for i, name := range c.ParamNames() {
//		c.Request().SetPathValue(name, c.ParamValues()[i])
//	}
//
// echo responds to the error that a handler returns only when all middlewares have
// returned. By then Idempotent has stored an empty 200. When echo responds, Idempotent
// notifies the Locker's observer of core.Misused. Mount an inner middleware that
// responds to errors:
//
//	func answered(next echo.HandlerFunc) echo.HandlerFunc {
//		return func(c echo.Context) error {
//			if err := next(c); err != nil {
//				c.Error(err)
//			}
//			return nil
//		}
//	}
//
// README.md of the directory frameworks describes the set-up for echo v5, Kratos, Huma,
// go-zero and Hertz, and a handler of Fiber with core and once. The tests there mount
// stdmw in these frameworks.
//
// net/http has no list of routes, so there is no Check. The first request to a route
// without the parameter of a Path notifies the Locker's observer of core.Misused, once
// for each middleware.
//
// # connect
//
// Handlers of connectrpc.com/connect need package grpcmw/connectmw instead. Behind
// stdmw, such handlers have these faults:
//
//   - A busy lock is an error with the code "unknown", and a missing key an error with
//     the code "internal", because connect's clients do not read HTTP problems.
//   - A replay over gRPC is an error, because trailers are not stored.
//   - A compressed replay over gRPC-Web is an error, unless KeepHeaders names
//     Grpc-Encoding.
//   - A repetition in another protocol, codec or compression counts as another
//     request.
//
// # Handlers and their writers
//
// Under a Lock, the handler gets the same writer as the middleware. Under Idempotent,
// the handler gets a writer that holds the response back until it is stored. That
// writer has these methods:
//
//   - Flush does nothing if the innermost writer cannot flush, such as the writer of
//     http.TimeoutHandler. http.ResponseController then returns an error.
//   - Hijack and Push fail with http.ErrNotSupported if the innermost writer does not
//     support them.
//   - Unwrap lets http.ResponseController set deadlines.
//
// A refusal by an inner Lock withdraws the run only if the Idempotent's writer gets the
// refusal. A writer in between may lack Unwrap, but it has to return the header map of
// the writer that it wraps. A writer with a header map of its own takes the refusal for
// itself, as in a sub-request. What the handler sends then is its own response.
//
// A response after a 1xx status is a stream, and is not stored.
//
// An http.TimeoutHandler belongs outside both middlewares. Inside, the handler would
// continue after the time-out without the lock. The 503 of the http.TimeoutHandler is
// not stored.
//
// net/http has no list of errors like gin's c.Errors. A handler passes errors to
// Idempotent by [Error], and [OnError] gets the reasons of refusals with status 500 and
// above. If a handler returns without a response, the response is an empty 200. It is
// not stored after a call of Error, or if the handler's context is done.
package stdmw
