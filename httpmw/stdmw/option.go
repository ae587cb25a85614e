package stdmw

import (
	"net/http"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// Option is a setting of one middleware. The function that makes an option panics if
// its value is not allowed. Lock panics for an option that is only for Idempotent, and
// Idempotent for an option that is only for Lock.
type Option func(*config)

// config holds the options of one middleware.
type config = guard.Config

// Problem is the response to a refused request. Its JSON is the problem details object
// of RFC 9457.
//
//   - Type string: a URI that identifies the kind of problem.
//   - Title string: the kind of problem, for people.
//   - Status int: the HTTP status.
//   - Detail string: the problem with this request, for people.
//   - Lock string: the name given to Lock or by CallName, or "".
//   - RetryAfter time.Duration: the time for which the client should wait before it
//     repeats the request. 0 means that a repetition is useless.
//   - Err error: the reason. It is not part of the response, because the error of a
//     KeyFunc can contain anything.
type Problem = guard.Problem

// Kept is a handler's response, for the function of KeepIf.
//
//   - Status int: the HTTP status.
//   - Header http.Header: a copy of the headers, including the headers of outer
//     middlewares.
//   - Body []byte: the data that the handler wrote, at most the first AnswerLimit
//     bytes. The function must not change Body.
//   - Unreplayable bool: the response cannot be stored. It is above a limit of
//     AnswerLimit, was sent as a stream, or is not as long as its Content-Length. Body
//     may then be only its beginning. If the function returns true, the same request is
//     later refused with 410. Otherwise the request can run again.
//   - ByDefault bool: a response of this status is stored without KeepIf.
type Kept = guard.Kept

// Acquire sets the options with which Lock acquires: TTL, wait and so on. Several
// Acquires add up, and a later option overrides an earlier option. Lock panics if a
// value is not allowed, or does not fit the Locker's own defaults. If the store reports
// only at a request that it does not support the lock, the request gets 500.
//
// A server notices that an HTTP/1 client has disconnected only after the body was read.
// So with core.Wait, Lock reads a body of at most BodyLimit bytes before it waits.
func Acquire(opts ...core.AcquireOption) Option { return Option(pkg.Acquire(opts)) }

// Also makes Lock lock more keys under the same lease, all or nothing. For example, a
// transfer locks both accounts. All keys have the middleware's name. The order of the
// keys does not matter, and a key may be repeated. Two requests with the same keys do
// not deadlock. Several Alsos add up.
func Also(keys ...KeyFunc) Option {
	return Option(guard.Also(pkg, keys, KeyFunc.inner))
}

// FailOpen lets a Lock's requests run without the lock if the store is unavailable. By
// default such requests get 503. FailOpen does not apply to a busy lock, a lost outer
// lock, a closed Locker, or a request that is canceled or timed out. In the handler,
// core.Unlocked(ctx) reports whether the handler runs without the lock. Each request
// without the lock notifies the Locker's observer of core.RanUnlocked. If the store has
// granted the lock and its reply was lost, the grant is released in the background.
//
// Use FailOpen if two simultaneous requests cost only time, such as a cache fill or a
// report. Do not use FailOpen if such requests cost money, such as a charge or a
// booking.
func FailOpen() Option { return Option(guard.FailOpen()) }

// Render replaces the response to a refused request. When render is called, the status
// and Retry-After are set but not written. render may change the status and the
// headers, and need not write the status. Render panics if render is nil.
func Render(render func(w http.ResponseWriter, r *http.Request, p Problem)) Option {
	if render == nil {
		panic("stdmw: Render: the function is nil")
	}
	return Option(guard.Render(func(x guard.Exchange, p guard.Problem) { render(x.Writer(), x.Request(), p) }))
}

// OnError calls f with the reason of each refusal with status 500 and above, because
// the response does not contain the reason. It does not call f for contention, which
// needs no alert. f is called before the response is written, on the request's
// goroutine. OnError panics if f is nil.
func OnError(f func(r *http.Request, err error)) Option {
	if f == nil {
		panic("stdmw: OnError: the function is nil")
	}
	return Option(guard.Report(func(x guard.Exchange, err error) { f(x.Request(), err) }))
}

// Skip lets requests for which skip returns true run without the middleware.
func Skip(skip func(r *http.Request) bool) Option {
	if skip == nil {
		panic("stdmw: Skip: the function is nil")
	}
	return Option(guard.Skip(func(x guard.Exchange) bool { return skip(x.Request()) }))
}

// BodyLimit sets the maximum length of a body that is read, in bytes. The default is 1
// MiB. Idempotent responds with 413 to a longer body. Lock, and Idempotent with
// Fingerprint, refuse a longer body only if JSON or Form reads the body. BodyLimit
// panics if n is not positive.
func BodyLimit(n int64) Option { return Option(pkg.BodyLimit(n)) }

// ProblemBase sets the base of a problem's type. The names in httpmw's documentation
// are appended to the base. For example, "https://pay.example/problems/" gives
// "https://pay.example/problems/lock-busy". By default the type is a link to a page of
// the kit, PROBLEMS.md. ProblemBase panics if uri is empty or not a URI.
func ProblemBase(uri string) Option { return Option(pkg.ProblemBase(uri)) }

// KeepIf sets which responses Idempotent stores. By default it stores the responses
// that a repetition would get again: 2xx, 3xx and 4xx, except 401, 403, 407, 408, 409,
// 423, 425, 429 and 499. Other responses are sent and not stored. A repetition of the
// request then runs the handler as a further attempt, unless once.AtMostOnce prevents
// it. An API whose bodies report failures can use
//
//	stdmw.KeepIf(func(k stdmw.Kept) bool {
//		return k.ByDefault && !bytes.Contains(k.Body, []byte(`"code":503`))
//	})
//
// If work may be done before a 500, store the 500 too, as Stripe does:
//
//	stdmw.KeepIf(func(stdmw.Kept) bool { return true })
//
// Idempotent calls keep once for each response, when the handler has returned and
// before anything is stored. If the handler calls Commit, each Commit calls keep
// instead. If keep panics, the panic continues and nothing is stored. With
// once.AtMostOnce the request then does not run again. keep must be safe for concurrent
// use.
//
// Some responses are never stored, and keep is not called for them:
//
//   - a response that the handler has marked by once.NotFinal
//   - a response of 400 or more of a run that the handler has withdrawn by once.Withdraw
//   - a refusal by an inner Lock or Idempotent, such as a busy lock
//   - after a call of Error, a response of 400 or more without a body, because an outer
//     middleware may write the body
//
// keep is not called for a request whose connection was hijacked. Such a request does
// not run again. KeepIf panics if keep is nil.
func KeepIf(keep func(k Kept) bool) Option {
	return Option(pkg.KeepIf(keep))
}

// KeepHeaders makes Idempotent store more headers of a response. By default these are
// stored: Content-Disposition, Content-Encoding, Content-Language, Content-Location,
// Content-Type, ETag, Last-Modified, Link and Location. A header of this list or of
// names is stored only if the handler or an inner middleware has set it. Several
// KeepHeaders add up. KeepHeaders panics for an invalid name, and for a header that
// describes the connection, the time or the caller, such as Set-Cookie and Date.
func KeepHeaders(names ...string) Option { return Option(pkg.KeepHeaders(names)) }

// AnswerLimit sets the maximum length of a response body that Idempotent stores, in
// bytes. The default is 256 KiB. A longer response that KeepIf accepts is sent. The
// same request is then refused with 410, and not run again. The same applies to a
// response with more than 64 KiB of headers to store, and to a response that is longer
// than 32 MiB with its headers, the limit of a Once. While a response is stored, it
// takes several times its length in memory, and Redis executes no other command.
// AnswerLimit panics if n is not positive.
func AnswerLimit(n int64) Option { return Option(pkg.AnswerLimit(n)) }

// Methods sets the methods that Idempotent covers, in upper case. The default is POST
// and PATCH. Requests of other methods pass, with or without a key. They need no key: a
// repeated PUT or DELETE changes nothing more, and GET, HEAD and OPTIONS change
// nothing. Requests of covered methods need a key; see Optional. Methods panics if no
// method is named, or if a method is empty, safe or not in upper case.
func Methods(methods ...string) Option { return Option(pkg.Methods(methods)) }

// Key sets where Idempotent finds the key of a request. The default is the header
// Idempotency-Key.
//
//	stdmw.Key(stdmw.Header("webhook-id"))
//	stdmw.Key(stdmw.JSON("payment.request_id"))
//
// A key of one part is 1 to 512 bytes of UTF-8 without control characters and U+241F,
// and is used unchanged. Quotes are part of the key. The same text in the header
// Idempotency-Key is the same key. A key of Join has at most 512 bytes, including 3
// bytes between two parts. Your own KeyFunc returns "" if there is no key. A request
// without a key is refused with 400, like a request without a scope; see Optional. If
// Key is given twice, the last Key counts. Key panics if of is nil.
func Key(of KeyFunc) Option { return Option(pkg.Key(of.inner())) }

// Optional lets requests without a key run as they would run without Idempotent. By
// default such requests are refused with 400. A key that is present and not allowed is
// always refused. Examples are an empty header, null in a JSON field, and two values. A
// key of Join is missing if one of its parts is missing.
func Optional() Option { return Option(guard.Optional()) }

// Fingerprint sets the parts that have to be the same in all requests under one key, in
// addition to method and path. The default is query, media type and body. Fingerprint
// is for clients that write a repeated request in another form, such as JSON with its
// fields in another order:
//
//	stdmw.Fingerprint(stdmw.Join(stdmw.JSON("order"), stdmw.JSON("amount")))
//
// Other fields can differ unnoticed. If the function of returns "", the request is
// refused with 400. Fingerprint panics if of is nil.
func Fingerprint(of KeyFunc) Option { return Option(pkg.Fingerprint(of.inner())) }

// CallName names an Idempotent in events, errors and responses, so that checkout and
// refund can be distinguished. The default is "http" in events and errors. Responses
// have no name by default. The name is not part of a key: a key that is used under two
// names is one key. Stored responses are found under a new name too. CallName panics if
// name is not of the form [A-Za-z0-9._-]+ or has more than 64 bytes.
func CallName(name string) Option { return Option(pkg.CallName(name)) }

// Detached lets handlers under Idempotent continue when the client disconnects or the
// request's deadline passes. A repeated request can then get the stored response. The
// context of such a handler is canceled only by the loss of the run's lease or of an
// outer lease, or by the closing of that lease's Locker. After the client has
// disconnected, the loss of an outer lease no longer cancels the context. So mount Lock
// inside Idempotent. Nothing else stops a handler that hangs, so the handler needs its
// own time-outs.
func Detached() Option { return Option(guard.Detached()) }
