// Package stdmw puts handlers of net/http under distributed locks, and gives
// requests that are repeated one answer, as httpmw does for gin:
//
//	pay := stdmw.Lock(locker, "order", stdmw.Path("id"))
//	mux.Handle("POST /orders/{id}/pay", pay(handler))
//
// Requests to pay order 42 now run one at a time, on whichever replica they
// arrive. A second click while the first is being worked on is answered with
// 409 and does not run. The handler finds its lease, and the fencing token, by
// core.LeaseFromContext(r.Context()); that context ends when the lease is lost.
// With [Idempotent], a client that got no answer asks again under the same
// Idempotency-Key, and gets the first answer:
//
//	once := stdmw.Idempotent(runs, account)
//	mux.Handle("POST /orders/{id}/pay", once(pay(handler)))
//
// What a service has to tell its clients about keys, which answers are kept, how a
// request that may not run is answered, and in which order to mount, stand in the
// documentation of httpmw, and hold here: both are one implementation, and the one
// replays what the other has kept. What differs is below.
//
// # Frameworks
//
// Lock and Idempotent are of the type func(http.Handler) http.Handler, which is what
// chi takes, and echo by echo.WrapMiddleware. Wrap the handlers of routes, and not
// the mux: outside of it there are no path parameters yet, and a request that
// matches no route is refused for want of a key, and not answered with 404.
//
// [Path] reads http.Request.PathValue, which http.ServeMux and chi set, the latter
// with the escapes that a path has beyond need: /orders/4%32 is 4%32, as chi.URLParam
// has it, and another order than 42. For echo, a middleware in front sets it:
//
//	for i, name := range c.ParamNames() {
//		c.Request().SetPathValue(name, c.ParamValues()[i])
//	}
//
// What a handler of echo returns is answered when all middlewares have returned, and
// Idempotent has kept an empty 200 by then; it tells the Locker's observer core.Misused.
// Have a middleware inside of it that answers errors:
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
// What echo v5, Kratos, Huma, go-zero and Hertz need stands in README.md of the directory
// frameworks, where the tests mount stdmw in them, and what a handler of Fiber does by itself.
//
// net/http has no list of routes, and so there is no Check: a Path that a route does
// not have tells the Locker's observer core.Misused with its first request.
//
// # connect
//
// Handlers of connectrpc.com/connect need package grpcmw/connectmw instead. Behind stdmw
// these things break:
//
//   - A busy lock is an error of the code "unknown" and a missing key one of "internal", since
//     connect's clients do not read problems of HTTP.
//   - A replay over gRPC is an error, since trailers are not kept.
//   - A compressed replay over gRPC-Web is an error, unless KeepHeaders names Grpc-Encoding.
//   - A repetition in another protocol, codec or compression counts as another request.
//
// # Handlers and their writers
//
// Under a Lock the handler has the writer that the middleware was given, with all
// it can do. Under Idempotent it has one that holds the answer back until it was
// saved. That has Flush, which does nothing and by http.ResponseController says so
// where the writer outside cannot flush, such as http.TimeoutHandler's; Hijack and
// Push, which fail with http.ErrNotSupported where the writer outside cannot; and
// Unwrap, by which http.ResponseController sets deadlines. An answer in front of
// which 1xx is sent is a stream, and not kept.
//
// An http.TimeoutHandler belongs outside of both: inside, its handler runs on after
// the lock was given back. Its answer of 503 is not kept.
//
// net/http has no list of errors for what a handler does not answer. [Error] takes
// its place where Idempotent has to know, and [OnError] hears the reasons of
// answers of 500 and above. A handler that returns without an answer has answered
// 200, unless the context that it was given has ended.
package stdmw
