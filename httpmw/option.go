package httpmw

import (
	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// Option is a setting of one middleware. Those that are given a bad value panic,
// as does a middleware that is given an option of the other one alone.
type Option func(*config)

// config is what the options of one middleware add up to.
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

// Acquire sets how Lock acquires: its TTL, how long to wait, and so on. Several add up, the later one wins. Lock panics if a value is not
// allowed; whether it fits the Locker's own defaults shows with the first
// request, which is answered with 500 if not.
//
// With core.Wait the body is read before the wait, if it is no longer than
// BodyLimit, since a server notices that the client of an HTTP/1 request is gone
// only when the body was read.
func Acquire(opts ...core.AcquireOption) Option { return Option(pkg.Acquire(opts)) }

// Also has Lock lock more keys under the same lease, all or nothing: a transfer locks
// both accounts. Each key is a value under the middleware's name, in the same
// name space as the first. Neither their order nor a key that comes twice
// matters, and two requests that name the same keys do not deadlock. Several add
// up.
func Also(keys ...KeyFunc) Option {
	return Option(guard.Also(pkg, keys, KeyFunc.inner))
}

// FailOpen lets a Lock's requests run without the lock where the store cannot be
// asked, in place of 503. A lock that is busy or lost, and a Locker that is closed,
// refuse as ever. core.Unlocked(ctx) tells the handler, core.RanUnlocked events count it,
// and what the store may have granted unheard is cleaned up.
//
// It is right where two at once only cost time: a cache fill, a report that would be
// made twice. It is wrong where they cost money: a charge, a booking.
func FailOpen() Option { return Option(guard.FailOpen()) }

// Render replaces how a request that may not run is answered. When render is
// called, the request is aborted, and the status and Retry-After are set but not
// written; render may change them. It must not call c.Next.
func Render(render func(c *gin.Context, p Problem)) Option {
	if render == nil {
		panic("httpmw: Render: the function is nil")
	}
	return Option(guard.Render(func(x guard.Exchange, p guard.Problem) { render(x.(exchange).Context, p) }))
}

// Skip lets requests for which skip returns true run without the middleware.
func Skip(skip func(c *gin.Context) bool) Option {
	if skip == nil {
		panic("httpmw: Skip: the function is nil")
	}
	return Option(guard.Skip(func(x guard.Exchange) bool { return skip(x.(exchange).Context) }))
}

// BodyLimit sets the length of the longest body, in bytes, that is read, 1 MiB by
// default; longer ones are answered with 413. Lock reads bodies to look for a key
// in them: where no key is in the body it refuses nothing. Idempotent reads all
// of them, unless Fingerprint says otherwise. It panics if n is not positive.
func BodyLimit(n int64) Option { return Option(pkg.BodyLimit(n)) }

// ProblemBase sets what stands before the words of the package documentation in
// the type of an answer: "https://pay.example/problems/" makes
// "https://pay.example/problems/lock-busy". By default the type leads to a page of
// the kit, PROBLEMS.md. It panics if uri is empty or no URI.
func ProblemBase(uri string) Option { return Option(pkg.ProblemBase(uri)) }

// KeepIf sets which responses of Idempotent are kept. By default those are kept that
// would be the same another time: 2xx, 3xx and 4xx, except 401, 403, 407, 408, 409,
// 423, 425, 429 and 499. A response that is not kept is sent, and the request can be
// made again, which runs the handler as a further attempt. An API that says in its body
// that it failed has
//
//	httpmw.KeepIf(func(k httpmw.Kept) bool {
//		return k.ByDefault && !bytes.Contains(k.Body, []byte(`"code":503`))
//	})
//
// Where a 500 does not say that nothing was done, keep it too, as Stripe does:
//
//	httpmw.KeepIf(func(httpmw.Kept) bool { return true })
//
// Idempotent calls keep once for each response, when the handler has returned and
// before anything is kept. If keep panics, nothing is kept, the panic goes on, and
// once.AtMostOnce does not run the request again. keep is called by many goroutines.
//
// Some responses are never kept, and keep is not called for them: one that the handler
// has marked by once.NotFinal; one of a Lock or an Idempotent inside that refused for
// the moment, such as a busy lock; and one of 400 or more without a body beside an
// error in c.Errors, whose body may
// be written outside. A hijacked connection is not run again, and keep is not
// called for it either. It panics if keep is nil.
func KeepIf(keep func(k Kept) bool) Option {
	return Option(pkg.KeepIf(keep))
}

// KeepHeaders has Idempotent keep more headers of an answer than
// Content-Disposition, Content-Encoding, Content-Language, Content-Location,
// Content-Type, ETag, Last-Modified, Link and Location. A header is kept if the
// handler has set it, or what else is inside of the middleware. Several add up.
// It panics for a name that is no header's, and for headers that are of the connection,
// the moment or the caller, such as Set-Cookie and Date.
func KeepHeaders(names ...string) Option { return Option(pkg.KeepHeaders(names)) }

// AnswerLimit sets the length of the longest body, in bytes, of an answer that
// Idempotent keeps, 256 KiB by default. A longer one is sent, and when it is
// asked for again the request is refused with 410: it is neither replayed nor
// run again. So is one whose headers to keep are more than 64 KiB, or that is longer
// than 32 MiB with them, which is all that a Once keeps. As much memory is taken for a while, some times over, and the store
// has to bear it: Redis answers no other call meanwhile. It panics if n is not positive.
func AnswerLimit(n int64) Option { return Option(pkg.AnswerLimit(n)) }

// Methods sets the methods that Idempotent covers, in upper case, POST and PATCH by default.
// Others pass by, whether they have a key or not: PUT and DELETE do the same when they are
// repeated, GET, HEAD and OPTIONS nothing. Requests of those that are covered need a key, see
// Optional. It panics if there are none, or one is empty, safe or in lower case.
func Methods(methods ...string) Option { return Option(pkg.Methods(methods)) }

// Key sets where Idempotent finds the key of a request, in place of the header
// Idempotency-Key:
//
//	httpmw.Key(httpmw.Header("webhook-id"))
//	httpmw.Key(httpmw.JSON("payment.request_id"))
//
// A key of one part is 1 to 512 bytes of UTF-8 without control characters, and is taken as
// it was sent: quotes are part of it. It is the same key as in the header Idempotency-Key.
// A key of Join has at most 512 bytes with 3 between the parts. A KeyFunc of yours returns ""
// if there is no key. Requests in which of finds none are refused, as for scope, see Optional.
// If Key is given twice, the last one counts. It panics if of is nil.
func Key(of KeyFunc) Option { return Option(pkg.Key(of.inner())) }

// Optional has Idempotent let requests without a key run as they would without it. By
// default they are refused with 400. A key that is there and not allowed is refused
// in any case: an empty header, null in a JSON field, two values. A key of Join is missing
// if one of its parts is.
func Optional() Option { return Option(guard.Optional()) }

// Fingerprint sets what else than method and path has to be the same when a key
// is used again, instead of query, media type and body. It is for clients that write
// the same request in another way when they repeat it, such as JSON with its fields
// in another order:
//
//	httpmw.Fingerprint(httpmw.Join(httpmw.JSON("order"), httpmw.JSON("amount")))
//
// What it does not name can differ unnoticed. Requests in which of finds nothing
// are refused, as for scope. It panics if of is nil.
func Fingerprint(of KeyFunc) Option { return Option(pkg.Fingerprint(of.inner())) }

// CallName names an Idempotent in events, errors and answers, in place of "http",
// so that checkout and refund can be told apart. It is no part of what a key
// stands for: a key that is used under two names is still one key, and the
// answers that are kept are found under a new name too. It panics if name is not
// of the form [A-Za-z0-9._-]+ or has more than 64 bytes.
func CallName(name string) Option { return Option(pkg.CallName(name)) }

// Detached lets handlers under Idempotent work on when the client goes away or
// the request's deadline passes, so that the answer is there when the client
// asks again. Their context then ends only if the run's lease is lost, or if a
// middleware around loses one while the client is there: mount Lock inside. A
// handler that hangs is not ended by anything else; give it time-outs of its own.
func Detached() Option { return Option(guard.Detached()) }
