package stdmw

import (
	"context"
	"net/http"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// Lock returns a middleware that runs the wrapped handler under a lock. It locks
// core.Key(name, key), or core.Key(name, parts...) if Join made the key. The option
// Also adds further keys. Lock makes one attempt, unless Acquire(core.Wait(d)) sets a
// wait. Without the lock, the handler does not run. The request is then refused, as the
// documentation of httpmw describes. See FailOpen for the exception.
//
// The handler gets the unchanged writer, and a request with the lease's context. That
// context is derived from the request's own context. The lock is released when the
// handler has returned or panicked. A short response is still in the server's buffer at
// that time, so the client usually gets it after the release. If the store is
// unavailable, the release can take about 3 seconds. The lock does not cover goroutines
// that a handler has started and not awaited.
//
// An inner middleware or handler that acquires the same key, with the context of its
// request and the same store, re-enters the lock.
//
// Lock panics if l or key is nil, or if name is not of the form [A-Za-z0-9._-]+ or has
// more than 64 bytes. It also panics for an option that is nil or not for Lock, and for
// an acquire option that is not allowed or that the store's CheckClaim refuses. The
// handler that the middleware returns is safe for concurrent use and has no state
// between requests.
func Lock(l *core.Locker, name string, key KeyFunc, opts ...Option) func(http.Handler) http.Handler {
	return wrap(guard.NewLock(pkg, l, name, key.inner(), opts).Serve)
}

// Idempotent returns a middleware that gives requests with the same Idempotency-Key the
// response of the first request. o stores the status, body and headers of that
// response. A replay has the header Idempotent-Replayed: true, and the wrapped handler
// does not run. Trailers are sent, and not stored. The documentation of httpmw lists
// the other responses to such a request, and the responses that are stored.
//
// scope identifies the caller. A key is valid only within its scope, so no caller can
// get another caller's response by guessing or repeating a key. Take the scope from the
// result of authentication, which has to be mounted outside Idempotent. AnyCaller is
// for services whose callers cannot be distinguished.
//
// By default POST and PATCH are covered, and requests of other methods pass; see
// Methods. Two requests are the same if they have the same method, path, query, media
// type and body; see Fingerprint. The path is taken from the middleware's request. So
// behind an http.StripPrefix the prefix does not count. The whole body is read, up to
// BodyLimit, and the handler can read it again.
//
// The handler's response is held back until it is stored. If storing fails, the
// response is sent anyway, after up to about 3 seconds. These responses cannot be stored,
// and are sent while the handler writes them:
//
//   - an event stream
//   - a response that continues for more than a second after its first flush
//   - a response longer than AnswerLimit
//   - a response after a 1xx status, and the data on a hijacked connection
//
// The handler's request has the context of the run, which is derived from the request's
// own context. The run's context is canceled when the client disconnects (see Detached),
// or when the run's lease is lost. once.AttemptFromContext returns the number of the
// attempt. A number greater than 1 means that an earlier run began and stored no
// response. If the handler panics, so does the middleware, and nothing is stored.
//
// The options Acquire, Also and FailOpen are for Lock alone. Pass once.Acquire to
// once.New instead of Acquire. With core.Wait, a request waits for the response of a
// request in progress.
//
// Idempotent panics if o or scope is nil, or if o was not made by once.New. It also
// panics for an option that is nil or not for Idempotent. The handler that the
// middleware returns is safe for concurrent use.
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

// Error passes err to the Idempotents around a handler. The response does not contain
// err. ctx is the context of the handler's request. Without an Idempotent, Error does
// nothing. It is safe for concurrent use. These errors have an effect:
//
//   - An error that matches once.ErrIndeterminate means that the handler does not know
//     whether it had its effect. Under once.AtMostOnce, the request then does not run
//     again, even if its response is not stored.
//   - An error that once.Withdraw has marked means that the handler has done nothing,
//     if the response is 400 or more. The key is then free, even for another request.
//   - If any error was passed, a response of 400 or more without a body is not stored.
//     The empty 200 of a handler that writes no response is not stored either.
func Error(ctx context.Context, err error) {
	if n, ok := ctx.Value(notesKey{}).(*notes); ok && err != nil {
		n.add(err)
	}
}
