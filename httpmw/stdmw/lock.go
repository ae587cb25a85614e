package stdmw

import (
	"context"
	"net/http"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// Lock is a middleware that runs the handler behind it under a lock. It locks
// core.Key(name, key), with the parts of key if it is made by Join, and further
// keys that the option Also names. One attempt is made unless Acquire(core.Wait(d))
// says otherwise. If the lock is not acquired the request is answered as the
// documentation of httpmw says, and the handler does not run, see FailOpen.
//
// The handler gets the writer that the middleware was given, and a request with the
// lease's context, derived from that of the request. The lock is given back when it
// has returned or panicked, before a short answer is sent, so that a client's next
// request finds the lock free; if the store is down then, that can take about 3
// seconds. What a handler started and did not wait for is not covered.
//
// A middleware or handler behind it that acquires the same key, with the context of
// its request and the same store, re-enters.
//
// It panics if l or key is nil, name is not of the form [A-Za-z0-9._-]+ or has
// more than 64 bytes, an option is nil or not for Lock, or an acquire option is not
// allowed. The handler that the middleware returns is safe for concurrent use and
// keeps no state between requests.
func Lock(l *core.Locker, name string, key KeyFunc, opts ...Option) func(http.Handler) http.Handler {
	return wrap(guard.NewLock(pkg, l, name, key.inner(), opts).Serve)
}

// Idempotent is a middleware that gives requests with the same Idempotency-Key
// one answer: that of the first, whose status, body and headers are kept by o
// and given again, with the header Idempotent-Replayed: true, instead of running
// the handler behind it. Trailers are sent, and not kept. The documentation of
// httpmw says how else such a request is answered, and what is kept.
//
// scope identifies the caller: a key counts within its scope only, so that no caller can
// get another caller's answer by guessing or repeating a key. Take it from what
// authentication found, which has to be mounted outside. AnyCaller is for services
// that have no callers to tell apart.
//
// POST and PATCH are covered, see Methods; others pass by. A request is the same
// if method, path, query, media type and body are; see Fingerprint. The path is
// that of the request as it arrives here: behind an http.StripPrefix, the prefix is
// not told apart. The body is read whole, at most BodyLimit, and can be read again
// by the handler.
//
// What the handler writes is held back until it is saved, and sent then, also
// if it could not be saved, which can take about 3 seconds to find out. What
// cannot be kept is sent as it is written: events, an answer that goes on for more
// than a second after its first flush, what is longer than AnswerLimit, and what
// follows a 1xx or a hijacked connection.
//
// The handler's request has the context of the run, derived from that of the
// request: it ends when the client goes away, see Detached, or the run's lease is
// lost. once.AttemptFromContext tells there whether an earlier run was begun and
// did not come to an answer. If the handler panics, so does the middleware, and
// nothing is kept.
//
// Options of Lock alone, Acquire and Also, are not for Idempotent; once.Acquire
// is, given to once.New: with core.Wait, a request waits for the answer of the
// one that is being worked on.
//
// It panics if o or scope is nil, an option is nil or not for Idempotent. The
// handler that the middleware returns is safe for concurrent use.
func Idempotent(o *once.Once, scope KeyFunc, opts ...Option) func(http.Handler) http.Handler {
	return wrap(guard.NewIdempotent(pkg, o, scope.inner(), opts).Serve)
}

// wrap is a middleware. It panics there and then for a handler that is nil.
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

// Error notifies the Idempotents around a handler of what its answer does not say; ctx is that
// of its request. Elsewhere it does nothing. One that matches once.ErrIndeterminate says that
// the handler does not know whether it had its effect: under once.AtMostOnce, the request is
// not run again, if its answer is not one that is kept. One that once.Withdraw has marked,
// beside an answer of 400 or more, says that the handler has done nothing: the key is free,
// also for another request. An answer of 400 or more without a body, beside any error, is not
// kept, nor is one that was not written beside that of a context that is done. It is safe for
// concurrent use.
func Error(ctx context.Context, err error) {
	if n, ok := ctx.Value(notesKey{}).(*notes); ok && err != nil {
		n.add(err)
	}
}
