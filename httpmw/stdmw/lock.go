package stdmw

import (
	"context"
	"net/http"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// Lock returns a middleware that runs the wrapped handler under a lock. It locks
// core.Key(name, key), with the parts of key if Join made it, and further keys that the
// option Also names. It makes one attempt unless Acquire(core.Wait(d)) says otherwise.
// If the lock is not acquired the request is refused as the documentation of httpmw
// says, and the handler does not run; see FailOpen.
//
// The handler gets the writer that the middleware was given, and a request with the
// lease's context, derived from that of the request. The lock is released when the
// handler has returned or panicked, before a short response is sent, so that a client's
// next request finds the lock free. If the store is down then, that can take about 3
// seconds. Goroutines that a handler started and did not wait for are not covered.
//
// An inner middleware or handler that acquires the same key, with the context of its
// request and the same store, re-enters.
//
// Lock panics if l or key is nil, if name is not of the form [A-Za-z0-9._-]+ or has
// more than 64 bytes, if an option is nil or not for Lock, or if an acquire option is
// not allowed. The handler that the middleware returns is safe for concurrent use and
// has no state between requests.
func Lock(l *core.Locker, name string, key KeyFunc, opts ...Option) func(http.Handler) http.Handler {
	return wrap(guard.NewLock(pkg, l, name, key.inner(), opts).Serve)
}

// Idempotent returns a middleware that gives requests with the same Idempotency-Key one
// response, that of the first. o stores its status, body and headers. They are
// replayed, with the header Idempotent-Replayed: true, and the wrapped handler does not
// run. Trailers are sent, and not stored. The documentation of httpmw says which other
// responses such a request can get, and which are stored.
//
// scope identifies the caller. A key counts within its scope only, so no caller can get
// another caller's response by guessing or repeating a key. Take it from the result of
// authentication, which has to be mounted outside. AnyCaller is for services whose
// callers cannot be distinguished.
//
// By default POST and PATCH are covered, see Methods; others pass. A request is the
// same if method, path, query, media type and body are; see Fingerprint. The path is
// that of the request as it arrives here: behind an http.StripPrefix, the prefix does
// not count. The body is read whole, at most BodyLimit, and the handler can read it
// again.
//
// The handler's response is held back until it is stored. If storing fails, the
// response is sent anyway, after up to about 3 seconds. A response that cannot be
// stored is sent as it is written: events, a response that goes on for more than a
// second after its first flush, one longer than AnswerLimit, and what follows a 1xx or
// a hijacked connection.
//
// The handler's request has the context of the run, derived from that of the request.
// It is canceled when the client goes away, see Detached, or when the run's lease is
// lost. once.AttemptFromContext reports whether an earlier run was begun and came to no
// response. If the handler panics, so does the middleware, and nothing is stored.
//
// The options Acquire and Also are for Lock alone. Give once.Acquire to once.New
// instead: with core.Wait, a request waits for the response of the one in progress.
//
// Idempotent panics if o or scope is nil, or if an option is nil or not for Idempotent.
// The handler that the middleware returns is safe for concurrent use.
func Idempotent(o *once.Once, scope KeyFunc, opts ...Option) func(http.Handler) http.Handler {
	return wrap(guard.NewIdempotent(pkg, o, scope.inner(), opts).Serve)
}

// wrap makes middleware wrap handlers of net/http. It panics at once if the handler is
// nil.
func wrap(middleware func(guard.Exchange)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("stdmw: the handler is nil")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			serve(middleware, next, w, r)
		})
	}
}

// Error passes err to the Idempotents around a handler, because the response does not
// contain it; ctx is that of the handler's request. Elsewhere Error does nothing. It is
// safe for concurrent use. These errors have an effect:
//
//   - One that matches once.ErrIndeterminate says that the handler does not know
//     whether it had its effect. Under once.AtMostOnce, the request is not run again
//     if its response is not one that is stored.
//   - One that once.Withdraw has marked, beside a response of 400 or more, says that
//     the handler has done nothing: the key is free, even for another request.
//   - Beside any error, a response of 400 or more without a body is not stored.
//   - Beside the error of a context that is done, a response that was not written is
//     not stored.
func Error(ctx context.Context, err error) {
	if n, ok := ctx.Value(notesKey{}).(*notes); ok && err != nil {
		n.add(err)
	}
}
