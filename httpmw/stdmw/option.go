package stdmw

import (
	"net/http"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// Option is a setting of one middleware. An option with a bad value panics, as does a
// middleware that is given an option of the other one alone.
type Option func(*config)

// config holds the options of one middleware.
type config = guard.Config

// Problem is the response to a request that may not run, after RFC 9457. Its JSON is the
// problem details object.
//
//   - Type string: a URI that identifies the kind of problem.
//   - Title string: the kind, for people.
//   - Status int: the HTTP status.
//   - Detail string: what is wrong with this request, for people.
//   - Lock string: the name given to Lock or by CallName, or "".
//   - RetryAfter time.Duration: how long the client should wait before it asks again. 0
//     means that asking again is of no use.
//   - Err error: the reason. It is not part of the response, since the error of a KeyFunc
//     can say anything.
type Problem = guard.Problem

// Kept is a response as KeepIf sees it.
//
//   - Status int: the HTTP status.
//   - Header http.Header: a copy, with the headers that outer middlewares have set.
//   - Body []byte: what the handler wrote, at most the first AnswerLimit bytes. It must not
//     be changed.
//   - Unreplayable bool: reports that the response is longer than AnswerLimit or was sent as
//     a stream. It is not kept, and Body may be its beginning only. If KeepIf returns true,
//     the same request is refused with 410; otherwise it can be made again.
//   - ByDefault bool: reports whether the response is kept without KeepIf, by its status.
type Kept = guard.Kept

// Acquire sets how Lock acquires: its TTL, how long it waits, and so on. Several add
// up, and the later one wins. Lock panics if a value is not allowed. If the values do
// not fit the Locker's own defaults, the first request shows it: the response is 500.
//
// With core.Wait the body is read before the wait, if it is no longer than BodyLimit. A
// server notices that the client of an HTTP/1 request is gone only when the body was
// read.
func Acquire(opts ...core.AcquireOption) Option { return Option(pkg.Acquire(opts)) }

// Also makes Lock lock more keys under the same lease, all or nothing: a transfer locks
// both accounts. Each key is a value under the middleware's name, in the same name
// space as the first. Neither their order nor a key that comes twice matters, and two
// requests that name the same keys do not deadlock. Several add up.
func Also(keys ...KeyFunc) Option {
	return Option(guard.Also(pkg, keys, KeyFunc.inner))
}

// FailOpen lets a Lock's requests run without the lock if the store is unavailable. By
// default they get 503. A lock that is busy or lost, and a Locker that is closed, still
// refuse. core.Unlocked(ctx) reports it to the handler, core.RanUnlocked events count
// it, and a grant whose answer was lost is cleaned up.
//
// It is right where two at once only cost time: a cache fill, a report that would be
// made twice. It is wrong where they cost money: a charge, a booking.
func FailOpen() Option { return Option(guard.FailOpen()) }

// Render replaces the response to a request that may not run. When render is called,
// the status and Retry-After are set but not written; render may change them, and need
// not write the status. Render panics if render is nil.
func Render(render func(w http.ResponseWriter, r *http.Request, p Problem)) Option {
	if render == nil {
		panic("stdmw: Render: the function is nil")
	}
	return Option(guard.Render(func(x guard.Exchange, p guard.Problem) { render(x.Writer(), x.Request(), p) }))
}

// OnError calls f with the reason of each refusal of 500 and above, which the response
// does not contain. It does not call f for contention, which is no reason for an alert.
// f is called before the response is written, on the request's goroutine. OnError
// panics if f is nil.
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

// BodyLimit sets the length of the longest body that is read, in bytes. The default is
// 1 MiB. A longer body is refused with 413. Lock reads bodies only to look for a key in
// them: without a key in the body it refuses none. Idempotent reads all of them, unless
// Fingerprint says otherwise. BodyLimit panics if n is not positive.
func BodyLimit(n int64) Option { return Option(pkg.BodyLimit(n)) }

// ProblemBase sets the base of a problem's type, which stands before the words of
// httpmw's documentation: "https://pay.example/problems/" makes
// "https://pay.example/problems/lock-busy". By default the type leads to a page of the
// kit, PROBLEMS.md. ProblemBase panics if uri is empty or no URI.
func ProblemBase(uri string) Option { return Option(pkg.ProblemBase(uri)) }

// KeepIf sets which responses Idempotent stores. By default it stores those that would
// be the same another time: 2xx, 3xx and 4xx, except 401, 403, 407, 408, 409, 423, 425,
// 429 and 499. A response that is not stored is sent, and the request can be made
// again, which runs the handler as a further attempt. An API that says in its body that
// it failed has
//
//	stdmw.KeepIf(func(k stdmw.Kept) bool {
//		return k.ByDefault && !bytes.Contains(k.Body, []byte(`"code":503`))
//	})
//
// If a 500 does not mean that nothing was done, store it too, as Stripe does:
//
//	stdmw.KeepIf(func(stdmw.Kept) bool { return true })
//
// Idempotent calls keep once for each response, when the handler has returned and
// before anything is stored. If keep panics, nothing is stored, the panic goes on, and
// once.AtMostOnce does not run the request again. Many goroutines call keep.
//
// Some responses are never stored, and keep is not called for them: a response that the
// handler has marked by once.NotFinal; one of an inner Lock or Idempotent that refused
// for the moment, such as a busy lock; and one of 400 or more without a body beside an
// error in an Error, because an outer middleware may write its body. A hijacked
// connection is not run again, and keep is not called for it either. KeepIf panics if
// keep is nil.
func KeepIf(keep func(k Kept) bool) Option {
	return Option(pkg.KeepIf(keep))
}

// KeepHeaders makes Idempotent store more headers of a response. By default these are
// stored: Content-Disposition, Content-Encoding, Content-Language, Content-Location,
// Content-Type, ETag, Last-Modified, Link and Location. A header is stored if the
// handler or an inner middleware has set it. Several add up. KeepHeaders panics for a
// name that is not valid, and for headers of the connection, the moment or the caller,
// such as Set-Cookie and Date.
func KeepHeaders(names ...string) Option { return Option(pkg.KeepHeaders(names)) }

// AnswerLimit sets the length of the longest body of a response that Idempotent stores,
// in bytes. The default is 256 KiB. A longer response is sent, and the same request is
// then refused with 410: it is neither replayed nor run again. The same applies if the
// headers to store are more than 64 KiB, or if the response with them is longer than 32
// MiB, which is the limit of a Once. As much memory is taken for a while, some times
// over, and the store has to bear it: Redis answers no other call meanwhile.
// AnswerLimit panics if n is not positive.
func AnswerLimit(n int64) Option { return Option(pkg.AnswerLimit(n)) }

// Methods sets the methods that Idempotent covers, in upper case. The default is POST
// and PATCH. Others pass, whether they have a key or not: PUT and DELETE do the same
// when they are repeated, GET, HEAD and OPTIONS nothing. Requests of covered methods
// need a key; see Optional. Methods panics if there are none, or one is empty, safe or
// in lower case.
func Methods(methods ...string) Option { return Option(pkg.Methods(methods)) }

// Key sets where Idempotent finds the key of a request. The default is the header
// Idempotency-Key.
//
//	stdmw.Key(stdmw.Header("webhook-id"))
//	stdmw.Key(stdmw.JSON("payment.request_id"))
//
// A key of one part is 1 to 512 bytes of UTF-8 without control characters, and is taken
// as it was sent: quotes are part of it. It is the same key as in the header
// Idempotency-Key. A key of Join has at most 512 bytes, with 3 between the parts. A
// KeyFunc of yours returns "" if there is no key. Requests in which of finds no key are
// refused, as for scope; see Optional. If Key is given twice, the last one counts. Key
// panics if of is nil.
func Key(of KeyFunc) Option { return Option(pkg.Key(of.inner())) }

// Optional makes Idempotent run requests without a key as they would run without it. By
// default they are refused with 400. A key that is there and not allowed is always
// refused: an empty header, null in a JSON field, two values. A key of Join is missing
// if one of its parts is.
func Optional() Option { return Option(guard.Optional()) }

// Fingerprint sets what has to be the same when a key is used again, besides method and
// path. The default is query, media type and body. It is for clients that write the
// same request in another way when they repeat it, such as JSON with its fields in
// another order:
//
//	stdmw.Fingerprint(stdmw.Join(stdmw.JSON("order"), stdmw.JSON("amount")))
//
// Fields that it does not name can differ unnoticed. Requests in which of finds nothing
// are refused, as for scope. Fingerprint panics if of is nil.
func Fingerprint(of KeyFunc) Option { return Option(pkg.Fingerprint(of.inner())) }

// CallName names an Idempotent in events, errors and responses, so that checkout and
// refund can be distinguished. The default is "http". The name is no part of the
// meaning of a key: a key that is used under two names is still one key, and stored
// responses are found under a new name too. CallName panics if name is not of the form
// [A-Za-z0-9._-]+ or has more than 64 bytes.
func CallName(name string) Option { return Option(pkg.CallName(name)) }

// Detached lets handlers under Idempotent work on when the client goes away or the
// request's deadline passes, so that the response is there when the client asks again.
// Their context is then canceled only if the run's lease is lost, or if an outer
// middleware loses a lease while the client is there: mount Lock inside. Nothing else
// stops a handler that hangs; give it time-outs of its own.
func Detached() Option { return Option(guard.Detached()) }
