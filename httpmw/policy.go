package httpmw

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
)

// defaultAnswerLimit is how much of an answer is kept, in bytes.
const defaultAnswerLimit = 256 << 10

// maxKeptHeaders is how much the headers of an answer may add to that, in bytes:
// a handler can put into a Location or Link what its client sent.
const maxKeptHeaders = 64 << 10

// policy is what the options of Idempotent alone add up to.
type policy struct {
	callName    string
	keep        func(status int) bool
	headers     []string
	answerLimit int64
	methods     []string
	fingerprint KeyFunc
	detached    bool
	// forOnce and forLock name the options given that are not for both.
	forOnce, forLock []string
}

func newPolicy() policy {
	return policy{
		keep: keeps, headers: keptHeaders, answerLimit: defaultAnswerLimit,
		methods: []string{http.MethodPost, http.MethodPatch},
	}
}

// keeps tells whether an answer of this status would be the same another time.
func keeps(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired,
		http.StatusRequestTimeout, http.StatusConflict, http.StatusLocked, http.StatusTooEarly,
		http.StatusTooManyRequests, statusClientGone:
		return false
	}
	return status >= http.StatusOK && status < http.StatusInternalServerError
}

// Keep sets which answers of Idempotent are kept, by their status; the others are
// sent, and the request can be made again, which runs the handler as a further
// attempt. By default those are kept that would be the same another time: 2xx,
// 3xx and 4xx, but not 401, 403, 407, 408, 409, 423, 425, 429 and 499. What a Lock or
// an Idempotent inside refuses for the moment, such as a busy lock, is never kept, nor
// is an answer of 400 or more without a body beside an error in c.Errors, whose body
// may be written outside.
//
// Where a 500 does not say that nothing was done, keep it too, as Stripe does:
//
//	httpmw.Keep(func(status int) bool { return true })
func Keep(keep func(status int) bool) Option {
	if keep == nil {
		panic("httpmw: Keep: the function is nil")
	}
	return func(g *config) { g.keep = keep; g.forOnce = append(g.forOnce, "Keep") }
}

// neverKept are headers of the connection, the moment, the caller, or of what is
// outside.
var neverKept = []string{
	"Age", "Authorization", "Connection", "Content-Length", "Date", "Keep-Alive", "Proxy-*", "Retry-After", "Server",
	"Set-Cookie", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Vary", "Www-Authenticate",
	"Access-Control-*", replayedHeader,
}

// KeepHeaders has Idempotent keep more headers of an answer than
// Content-Disposition, Content-Encoding, Content-Language, Content-Location,
// Content-Type, ETag, Last-Modified, Link and Location. A header is kept if the
// handler has set it, or what else is inside of the middleware. Several add up.
// It panics for a name that is no header's, and for headers that are of the connection,
// the moment or the caller, such as Set-Cookie and Date.
func KeepHeaders(names ...string) Option {
	canonical := make([]string, len(names))
	for i, name := range names {
		canonical[i] = http.CanonicalHeaderKey(name)
		bad := !isLabel(name) || slices.ContainsFunc(neverKept, func(never string) bool {
			prefix, all := strings.CutSuffix(never, "*")
			return canonical[i] == never || all && strings.HasPrefix(canonical[i], prefix)
		})
		if bad {
			panic(fmt.Sprintf("httpmw: KeepHeaders: header %q is none, or of the connection, the moment or the caller, and not of the answer", name))
		}
	}
	return func(g *config) {
		g.headers = append(slices.Clip(g.headers), canonical...)
		g.forOnce = append(g.forOnce, "KeepHeaders")
	}
}

// AnswerLimit sets the length of the longest body, in bytes, of an answer that
// Idempotent keeps, 256 KiB by default. A longer one is sent, and when it is
// asked for again the request is refused with 410: it is neither replayed nor
// run again. So is one whose headers to keep are more than 64 KiB, or that is longer
// than 32 MiB with them, which is all that a Once keeps. As much memory is taken for a while, some times over, and the store
// has to bear it: Redis answers nobody else meanwhile. It panics if n is not positive.
func AnswerLimit(n int64) Option {
	if n <= 0 {
		panic(fmt.Sprintf("httpmw: AnswerLimit is %d, it must be positive", n))
	}
	return func(g *config) {
		g.answerLimit = min(n, math.MaxInt64-1)
		g.forOnce = append(g.forOnce, "AnswerLimit")
	}
}

// Methods sets the methods that Idempotent covers, in upper case, POST and PATCH
// by default. Others pass by, whether they have a key or not: PUT and DELETE do
// the same when they are repeated, GET, HEAD and OPTIONS nothing. Requests of
// those that are covered need a key; have Skip look at the header where it is
// optional. It panics if there are none, or one is empty, safe or in lower case.
func Methods(methods ...string) Option {
	safe := []string{"", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodConnect}
	for _, method := range methods {
		if slices.Contains(safe, method) || method != strings.ToUpper(method) {
			panic(fmt.Sprintf("httpmw: Methods: %q is empty, safe or not in upper case; POST, PATCH, PUT and DELETE are allowed, and others that change something", method))
		}
	}
	if len(methods) == 0 {
		panic("httpmw: Methods: there are none")
	}
	methods = slices.Clone(methods)
	return func(g *config) { g.methods = methods; g.forOnce = append(g.forOnce, "Methods") }
}

// Fingerprint sets what else than method and path has to be the same when a key
// is used again, instead of query, media type and the body's bytes. It is for
// clients that write the same request in another way when they repeat it:
//
//	httpmw.Fingerprint(httpmw.Join(httpmw.JSON("order"), httpmw.JSON("amount")))
//
// What it does not name can differ unnoticed. Requests in which of finds nothing
// are refused, as for scope. It panics if of is nil.
func Fingerprint(of KeyFunc) Option {
	if of == nil {
		panic("httpmw: Fingerprint: the function is nil")
	}
	return func(g *config) { g.fingerprint = of; g.forOnce = append(g.forOnce, "Fingerprint") }
}

// maxName is the length of the longest name of a Lock or an Idempotent, in bytes.
const maxName = 64

// CallName names an Idempotent in events, errors and answers, in place of "http",
// so that checkout and refund can be told apart. It is no part of what a key
// stands for: a key that is used under two names is still one key, and the
// answers that are kept are found under a new name too. It panics if name is not
// of the form [A-Za-z0-9._-]+ or has more than 64 bytes.
func CallName(name string) Option {
	if !isLabel(name) || len(name) > maxName {
		panic(fmt.Sprintf("httpmw: CallName: name %.80q is not of the form [A-Za-z0-9._-]+, or has more than %d bytes", name, maxName))
	}
	return func(g *config) { g.callName = name; g.forOnce = append(g.forOnce, "CallName") }
}

// Detached lets handlers under Idempotent work on when the client goes away or
// the request's deadline passes, so that the answer is there when the client
// asks again. Their context then ends only if the run's lease is lost, or if a
// middleware around loses one while the client is there: mount Lock inside. A
// handler that hangs is not ended by anything else; give it time-outs of its own.
func Detached() Option {
	return func(g *config) { g.detached = true; g.forOnce = append(g.forOnce, "Detached") }
}
