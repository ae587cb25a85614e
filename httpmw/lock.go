package httpmw

import (
	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// Lock returns a middleware that runs the handlers after it under a lock. It locks
// core.Key(name, key), with the parts of key if Join made it, and further keys that the
// option Also names. It makes one attempt unless Acquire(core.Wait(d)) says otherwise.
// If the lock is not acquired the request is aborted and refused as the package
// documentation says, and no handler after it runs; see FailOpen.
//
// Inner handlers see the lease's context in c.Request, derived from that of the
// request; outer ones see the request as it was. The lock is released when the inner
// handlers have returned or panicked, before a short response is sent, so that a
// client's next request finds the lock free. If the store is down then, that can take
// about 3 seconds. Goroutines that a handler started and did not wait for are not
// covered.
//
// An inner middleware or handler that acquires the same key, with the context of
// c.Request and the same store, re-enters. With another context it waits for itself. c
// is such a context unless the engine has ContextWithFallback; see Check.
//
// Lock panics if l or key is nil, if name is not of the form [A-Za-z0-9._-]+ or has
// more than 64 bytes, if an option is nil or not for Lock, or if an acquire option is
// not allowed. The returned handler is safe for concurrent use and has no state between
// requests.
func Lock(l *core.Locker, name string, key KeyFunc, opts ...Option) gin.HandlerFunc {
	m := guard.NewLock(pkg, l, name, key.inner(), withReport(opts))
	asked.add(anyMiddleware)
	return func(c *gin.Context) { m.Serve(exchange{c}) }
}

// Idempotent returns a middleware that gives requests with the same Idempotency-Key one
// response, that of the first. o stores its status, body and headers. They are
// replayed, with the header Idempotent-Replayed: true, and the handlers after it do not
// run. Trailers are sent, and not stored. The package documentation says which other
// responses such a request can get, and which are stored.
//
// scope identifies the caller. A key counts within its scope only, so no caller can get
// another caller's response by guessing or repeating a key. Take it from the result of
// authentication, which has to be mounted before; a KeyFunc of yours can read it from
// c. AnyCaller is for services whose callers cannot be distinguished.
//
// By default POST and PATCH are covered, see Methods; others pass. A request is the
// same if method, path, query, media type and body are; see Fingerprint. The path is
// the one that gin gets: behind an http.StripPrefix, the prefix does not count. The
// body is read whole, at most BodyLimit, and the handler can read it again.
//
// The handler's response is held back until it is stored. If storing fails, the
// response is sent anyway, after up to about 3 seconds. It is sent by the calls that
// the handler made, so an outer middleware that replaces the writer sees the same as
// without Idempotent. A response that cannot be stored is sent as it is written:
// events, a response that goes on for more than a second after its first flush, one
// longer than AnswerLimit, and the response of gin's Engine.HandleContext, without the
// headers that were set before it.
//
// Inner handlers see the context of the run in c.Request, derived from that of the
// request. It is canceled when the client goes away, see Detached, or when the run's
// lease is lost. once.AttemptFromContext reports whether an earlier run was begun and
// came to no response. If the handler panics, so does the middleware, and nothing is
// stored.
//
// The options Acquire and Also are for Lock alone. Give once.Acquire to once.New
// instead: with core.Wait, a request waits for the response of the one in progress.
//
// Idempotent panics if o or scope is nil, or if an option is nil or not for Idempotent.
// The returned handler is safe for concurrent use.
func Idempotent(o *once.Once, scope KeyFunc, opts ...Option) gin.HandlerFunc {
	m := guard.NewIdempotent(pkg, o, scope.inner(), withReport(opts))
	asked.add(anyMiddleware)
	return func(c *gin.Context) { m.Serve(exchange{c}) }
}

// withReport adds the reasons of refusals of 500 and above to c.Errors.
func withReport(opts []Option) []Option {
	report := guard.Report(func(x guard.Exchange, err error) { _ = x.(exchange).Error(err) })
	return append([]Option{Option(report)}, opts...)
}
