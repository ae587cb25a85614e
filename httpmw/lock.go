package httpmw

import (
	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// Lock returns a middleware that runs the handlers after it under a lock. It locks
// core.Key(name, key), or core.Key(name, parts...) if Join made the key. The option
// Also adds further keys. Lock makes one attempt, unless Acquire(core.Wait(d)) sets a
// wait. Without the lock, no handler after the middleware runs. The request is then
// aborted and refused, as the package documentation describes. See FailOpen for the
// exception.
//
// Inner handlers find the lease's context in c.Request. The lease's context is derived
// from the request's own context. Outer handlers see the unchanged request. The lock is
// released when the inner handlers have returned or panicked. A short response is still
// in the server's buffer at that time, so the client usually gets it after the release.
// If the store is unavailable, the release can take about 3 seconds. The lock does not
// cover goroutines that a handler has started and not awaited.
//
// An inner middleware or handler that acquires the same key, with the context of
// c.Request and the same store, re-enters the lock. With another context, the inner
// acquire waits for the lock of its own request. Unless the engine has
// ContextWithFallback, c is such another context; see Check.
//
// Lock panics if l or key is nil, or if name is not of the form [A-Za-z0-9._-]+ or has
// more than 64 bytes. It also panics for an option that is nil or not for Lock, and for
// an acquire option that is not allowed or that the store's CheckClaim refuses. The
// returned handler is safe for concurrent use and has no state between requests.
func Lock(l *core.Locker, name string, key KeyFunc, opts ...Option) gin.HandlerFunc {
	m := guard.NewLock(pkg, l, name, key.inner(), withReport(opts))
	asked.add(anyMiddleware)
	return func(c *gin.Context) { m.Serve(exchange{c}) }
}

// Idempotent returns a middleware that gives requests with the same Idempotency-Key the
// response of the first request. o stores the status, body and headers of that
// response. A replay has the header Idempotent-Replayed: true, and the handlers after
// the middleware do not run. Trailers are sent, and not stored. The package
// documentation lists the other responses to such a request, and the responses that are
// stored.
//
// scope identifies the caller. A key is valid only within its scope, so no caller can
// get another caller's response by guessing or repeating a key. Take the scope from the
// result of authentication, which has to be mounted before Idempotent. Your own KeyFunc
// can read the scope from c. AnyCaller is for services whose callers cannot be
// distinguished.
//
// By default POST and PATCH are covered, and requests of other methods pass; see
// Methods. Two requests are the same if they have the same method, path, query, media
// type and body; see Fingerprint. The path is taken from gin's request. So behind an
// http.StripPrefix the prefix does not count. The whole body is read, up to BodyLimit,
// and the handler can read it again.
//
// The handler's response is held back until it is stored. If storing fails, the
// response is sent anyway, after up to about 3 seconds. An outer middleware that
// replaces the writer gets the calls that the handler made. These responses cannot be
// stored, and are sent while the handler writes them:
//
//   - an event stream
//   - a response that continues for more than a second after its first flush
//   - a response longer than AnswerLimit
//   - a response after a 1xx status, and the data on a hijacked connection
//   - the response of gin's Engine.HandleContext, without the headers that the handler
//     set before it called HandleContext
//
// Inner handlers find the context of the run in c.Request. The run's context is derived
// from the request's own context. It is canceled when the client disconnects (see
// Detached), or when the run's lease is lost. once.AttemptFromContext returns the
// number of the attempt. A number greater than 1 means that an earlier run began and
// stored no response. If the handler panics, so does the middleware, and nothing is
// stored.
//
// The options Acquire, Also and FailOpen are for Lock alone. Pass once.Acquire to
// once.New instead of Acquire. With core.Wait, a request waits for the response of a
// request in progress.
//
// Idempotent panics if o or scope is nil, or if o was not made by once.New. It also
// panics for an option that is nil or not for Idempotent. The returned handler is safe
// for concurrent use.
func Idempotent(o *once.Once, scope KeyFunc, opts ...Option) gin.HandlerFunc {
	m := guard.NewIdempotent(pkg, o, scope.inner(), withReport(opts))
	asked.add(anyMiddleware)
	return func(c *gin.Context) { m.Serve(exchange{c}) }
}

// withReport returns opts with an option that adds the reasons of refusals with status
// 500 and above to c.Errors.
func withReport(opts []Option) []Option {
	report := guard.Report(func(x guard.Exchange, err error) { _ = x.(exchange).Error(err) })
	return append([]Option{Option(report)}, opts...)
}
