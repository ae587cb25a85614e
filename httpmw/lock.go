package httpmw

import (
	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// Lock is a middleware that runs what comes after it under a lock. It locks
// core.Key(name, key), with the parts of key if it is made by Join, and further
// keys that the option Also names. One attempt is made unless Acquire(core.Wait(d))
// says otherwise. If the lock is not acquired the request is aborted and
// answered as the package documentation says, and nothing after it runs, see FailOpen.
//
// Handlers below see the lease's context in c.Request, derived from that of the
// request; above, the request is as it was. The lock is given back when they
// have returned or panicked, before a short answer is sent, so that a client's
// next request finds the lock free; if the store is down then, that can take
// about 3 seconds. What a handler started and did not wait for is not covered.
//
// A middleware or handler below that acquires the same key, with the context of
// c.Request and the same store, re-enters. With another context it waits for itself.
// c is such a context unless the engine has ContextWithFallback, see Check.
//
// It panics if l or key is nil, name is not of the form [A-Za-z0-9._-]+ or has
// more than 64 bytes, an option is nil or not for Lock, or an acquire option is not allowed. The returned
// handler is safe for concurrent use and keeps no state between requests.
func Lock(l *core.Locker, name string, key KeyFunc, opts ...Option) gin.HandlerFunc {
	m := guard.NewLock(pkg, l, name, key.inner(), withReport(opts))
	asked.add(anyMiddleware)
	return func(c *gin.Context) { m.Serve(exchange{c}) }
}

// Idempotent is a middleware that gives requests with the same Idempotency-Key
// one answer: that of the first, whose status, body and headers are kept by o
// and given again, with the header Idempotent-Replayed: true, instead of running
// what comes after it. Trailers are sent, and not kept. The package documentation
// says how else such a request is answered, and what is kept.
//
// scope identifies the caller: a key counts within its scope only, so that no caller can
// get another caller's answer by guessing or repeating a key. Take it from what
// authentication found, which has to be mounted before; a KeyFunc of yours can
// read it from c. AnyCaller is for services that have no callers to tell apart.
//
// POST and PATCH are covered, see Methods; others pass by. A request is the same
// if method, path, query, media type and body are; see Fingerprint. The path is what
// gin gets of it: behind an http.StripPrefix, the prefix is not told apart. The body is
// read whole, at most BodyLimit, and can be read again by the handler.
//
// What the handler writes is held back until it is saved, and sent then, also
// if it could not be saved, which can take about 3 seconds to find out. It is sent
// by the calls that the handler made, so that a middleware outside that replaces
// the writer sees the same as without Idempotent. What
// cannot be kept is sent as it is written: events, an answer that goes on for more
// than a second after its first flush, what is longer than
// AnswerLimit, and what gin's Engine.HandleContext answers, without the headers
// that were set before it. Handlers below see the context of the run in c.Request, derived
// from that of the request: it ends when the client goes away, see Detached, or
// the run's lease is lost. once.AttemptFromContext tells there whether an earlier
// run was begun and did not come to an answer. If the handler panics, so does
// the middleware, and nothing is kept.
//
// Options of Lock alone, Acquire and Also, are not for Idempotent; once.Acquire
// is, given to once.New: with core.Wait, a request waits for the answer of the
// one that is being worked on.
//
// It panics if o or scope is nil, an option is nil or not for Idempotent. The
// returned handler is safe for concurrent use.
func Idempotent(o *once.Once, scope KeyFunc, opts ...Option) gin.HandlerFunc {
	m := guard.NewIdempotent(pkg, o, scope.inner(), withReport(opts))
	asked.add(anyMiddleware)
	return func(c *gin.Context) { m.Serve(exchange{c}) }
}

// withReport has gin told of what the answers of 500 and above do not say.
func withReport(opts []Option) []Option {
	report := guard.Report(func(x guard.Exchange, err error) { _ = x.(exchange).Error(err) })
	return append([]Option{Option(report)}, opts...)
}
