package guard

import (
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/lockkit/lockkit/core/keys"
)

// defaultAnswerLimit is the default maximum length of a stored body, in bytes.
const defaultAnswerLimit = 256 << 10

// maxKeptHeaders limits the length of a response's stored headers, in bytes.
// AnswerLimit does not cover headers, and a handler can put a client's data into a
// Location or Link.
const maxKeptHeaders = 64 << 10

// maxStored is the maximum length of an answer that a Once stores.
const maxStored = 32 << 20

// policy holds the options that are only for Idempotent.
type policy struct {
	callName    string
	keepIf      func(Kept) bool // nil: the function keeps decides
	headers     []string
	answerLimit int64
	methods     []string
	key         KeyFunc // nil: the header
	optional    bool    // the key is optional
	fingerprint KeyFunc
	detached    bool
	// forOnce and forLock have the names of the given options that are only for one of
	// the middlewares.
	forOnce, forLock []string
}

func newPolicy() policy {
	return policy{
		headers: keptHeaders, answerLimit: defaultAnswerLimit,
		methods: []string{http.MethodPost, http.MethodPatch},
	}
}

// keeps reports whether a response of this status is stored by default. It returns true
// for a status that a repetition of the request would get again.
func keeps(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired,
		http.StatusRequestTimeout, http.StatusConflict, http.StatusLocked, http.StatusTooEarly,
		http.StatusTooManyRequests, statusClientGone:
		return false
	}
	return status >= http.StatusOK && status < http.StatusInternalServerError
}

// Kept is a handler's response, for the function of KeepIf. Body must not be changed.
type Kept struct {
	Status int
	Header http.Header // a copy, including the headers of outer middlewares
	// Body is the data that the handler wrote, at most the first AnswerLimit bytes.
	Body []byte
	// Unreplayable reports whether the response cannot be stored: it is above a limit of
	// AnswerLimit, was sent as a stream, or is not as long as its Content-Length. Body
	// may then be only its beginning. If the function returns true, the same request is
	// later refused with 410. Otherwise the request can run again.
	Unreplayable bool
	// ByDefault reports whether a response of this status is stored without KeepIf.
	ByDefault bool
}

// KeepIf sets the function that decides whether a response is stored.
func (p Package) KeepIf(keep func(Kept) bool) Option {
	if keep == nil {
		p.panic("KeepIf: the function is nil")
	}
	return func(g *Config) { g.keepIf = keep; g.forOnce = append(g.forOnce, "KeepIf") }
}

// neverKept lists headers that describe the connection, the time or the caller, or that
// outer middlewares set.
var neverKept = []string{
	"Age", "Authorization", "Connection", "Content-Length", "Date", "Keep-Alive", "Proxy-*", "Retry-After", "Server",
	"Set-Cookie", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Vary", "Www-Authenticate",
	"Access-Control-*", replayedHeader,
}

// KeepHeaders adds names to the headers that are stored.
func (p Package) KeepHeaders(names []string) Option {
	canonical := make([]string, len(names))
	for i, name := range names {
		canonical[i] = http.CanonicalHeaderKey(name)
		bad := !keys.IsLabel(name) || slices.ContainsFunc(neverKept, func(never string) bool {
			prefix, all := strings.CutSuffix(never, "*")
			return canonical[i] == never || all && strings.HasPrefix(canonical[i], prefix)
		})
		if bad {
			p.panic("KeepHeaders: %q is not a header name, or is a header of the connection, the moment or the caller", name)
		}
	}
	return func(g *Config) {
		g.headers = append(slices.Clip(g.headers), canonical...)
		g.forOnce = append(g.forOnce, "KeepHeaders")
	}
}

// AnswerLimit sets the maximum length of a stored response body, in bytes.
func (p Package) AnswerLimit(n int64) Option {
	if n <= 0 {
		p.panic("AnswerLimit: %d is out of range (at least 1)", n)
	}
	return func(g *Config) {
		g.answerLimit = min(n, math.MaxInt64-1)
		g.forOnce = append(g.forOnce, "AnswerLimit")
	}
}

// Methods sets the methods that an Idempotent covers.
func (p Package) Methods(methods []string) Option {
	safe := []string{"", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodConnect}
	for _, method := range methods {
		if slices.Contains(safe, method) || method != strings.ToUpper(method) {
			p.panic("Methods: %q is empty, safe or not in upper case (allowed: POST, PATCH, PUT, DELETE and others that change something)", method)
		}
	}
	if len(methods) == 0 {
		p.panic("Methods: no method is named")
	}
	methods = slices.Clone(methods)
	return func(g *Config) { g.methods = methods; g.forOnce = append(g.forOnce, "Methods") }
}

// Fingerprint sets the function that returns the compared parts of a request, in
// addition to method and path.
func (p Package) Fingerprint(of KeyFunc) Option {
	if of == nil {
		p.panic("Fingerprint: the function is nil")
	}
	return func(g *Config) { g.fingerprint = of; g.forOnce = append(g.forOnce, "Fingerprint") }
}

// Key sets the function that finds the idempotency key.
func (p Package) Key(of KeyFunc) Option {
	if of == nil {
		p.panic("Key: the function is nil")
	}
	return func(g *Config) { g.key = of; g.forOnce = append(g.forOnce, "Key") }
}

// Optional lets requests without an idempotency key run without the middleware.
func Optional() Option {
	return func(g *Config) { g.optional = true; g.forOnce = append(g.forOnce, "Optional") }
}

// CallName names an Idempotent.
func (p Package) CallName(name string) Option {
	if err := keys.CheckName(name); err != nil {
		p.panic("CallName: %v", err)
	}
	return func(g *Config) { g.callName = name; g.forOnce = append(g.forOnce, "CallName") }
}

// Detached lets handlers under an Idempotent continue when the client disconnects.
func Detached() Option {
	return func(g *Config) { g.detached = true; g.forOnce = append(g.forOnce, "Detached") }
}
