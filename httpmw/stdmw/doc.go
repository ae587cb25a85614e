// Package stdmw runs handlers of net/http under distributed locks, and replays the
// first response to repeated requests, as httpmw does for gin:
//
//	pay := stdmw.Lock(locker, "order", stdmw.Path("id"))
//	mux.Handle("POST /orders/{id}/pay", pay(handler))
//
// Requests to pay order 42 now run one at a time, on whichever replica they arrive. A
// second click while the first is in progress gets 409 and does not run. The handler
// finds its lease, and the fencing token, by core.LeaseFromContext(r.Context()). That
// context is canceled when the lease is lost. With [Idempotent], a client that got no
// response asks again under the same Idempotency-Key, and gets the first response:
//
//	once := stdmw.Idempotent(runs, account)
//	mux.Handle("POST /orders/{id}/pay", once(pay(handler)))
//
// The documentation of httpmw says what the clients of a service have to know about
// keys, which responses are stored, how a request that may not run is refused, and in
// which order to mount. It holds here too: both are one implementation, and each
// replays the responses that the other has stored. The differences are below.
//
// # Frameworks
//
// Lock and Idempotent are of the type func(http.Handler) http.Handler, which is what
// chi takes, and echo by echo.WrapMiddleware. Wrap the handlers of routes, and not the
// mux. Outside of the mux there are no path parameters yet, and a request that matches
// no route is refused because it has no key, instead of getting 404.
//
// [Path] reads http.Request.PathValue, which http.ServeMux and chi set. chi leaves the
// escapes that a path has beyond need: /orders/4%32 is 4%32, as chi.URLParam has it,
// and another order than 42. For echo, a middleware in front sets it:
//
//	for i, name := range c.ParamNames() {
//		c.Request().SetPathValue(name, c.ParamValues()[i])
//	}
//
// echo responds to the error that a handler returns only when all middlewares have
// returned. By then Idempotent has stored an empty 200; it notifies the Locker's
// observer of core.Misused. Mount an inner middleware that responds to errors:
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
// README.md of the directory frameworks says what echo v5, Kratos, Huma, go-zero and
// Hertz need, and what a handler of Fiber does by itself. The tests there mount stdmw
// in them.
//
// net/http has no list of routes, and so there is no Check. If a route does not have
// the parameter of a Path, the Locker's observer is notified of core.Misused at its
// first request.
//
// # connect
//
// Handlers of connectrpc.com/connect need package grpcmw/connectmw instead. Behind
// stdmw these things break:
//
//   - A busy lock is an error of the code "unknown" and a missing key one of
//     "internal", because connect's clients do not read problems of HTTP.
//   - A replay over gRPC is an error, because trailers are not stored.
//   - A compressed replay over gRPC-Web is an error, unless KeepHeaders names
//     Grpc-Encoding.
//   - A repetition in another protocol, codec or compression counts as another
//     request.
//
// # Handlers and their writers
//
// Under a Lock the handler has the writer that the middleware was given, with all its
// abilities. Under Idempotent it has a writer that holds the response back until it is
// stored, with these methods:
//
//   - Flush does nothing if the outer writer cannot flush, such as that of
//     http.TimeoutHandler, and reports so through http.ResponseController.
//   - Hijack and Push fail with http.ErrNotSupported if the outer writer cannot do it.
//   - Unwrap lets http.ResponseController set deadlines.
//
// A response in front of which 1xx is sent is a stream, and not stored.
//
// An http.TimeoutHandler belongs outside of both: inside, its handler runs on after the
// lock was released. Its response of 503 is not stored.
//
// net/http has no list of errors for what a handler does not put into its response.
// [Error] takes its place for what Idempotent has to know, and [OnError] gets the
// reasons of refusals of 500 and above. A handler that returns without a response has
// responded with 200, unless the context that it was given is done.
package stdmw
