package httpmw

import (
	"fmt"
	"math"
	"net/url"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// Option is a setting of one middleware. Those that are given a bad value panic,
// as does a middleware that is given an option of the other one alone.
type Option func(*config)

// config is what the options of one middleware add up to.
type config struct {
	acquire []core.AcquireOption
	also    []KeyFunc
	render  func(*gin.Context, Problem)
	skip    func(*gin.Context) bool
	limit   int64
	base    string
	policy
}

// Acquire sets how Lock acquires: its TTL, how long to wait, and so on. Several add up, the later one wins. Lock panics if a value is not
// allowed; whether it fits the Locker's own defaults shows with the first
// request, which is answered with 500 if not.
//
// With core.Wait the body is read before the wait, if it is no longer than
// BodyLimit, since a server notices that the client of an HTTP/1 request is gone
// only when the body was read.
func Acquire(opts ...core.AcquireOption) Option {
	opts = append([]core.AcquireOption(nil), opts...)
	for _, o := range opts {
		if o == nil {
			panic("httpmw: Acquire: an option is nil")
		}
	}
	return func(g *config) { g.acquire = append(g.acquire, opts...); g.forLock = append(g.forLock, "Acquire") }
}

// Also has Lock lock more keys under the same lease, all or nothing: a transfer locks
// both accounts. Each key is a value under the middleware's name, in the same
// name space as the first. Neither their order nor a key that comes twice
// matters, and two requests that name the same keys do not deadlock. Several add
// up.
func Also(keys ...KeyFunc) Option {
	keys = append([]KeyFunc(nil), keys...)
	for _, k := range keys {
		if k == nil {
			panic("httpmw: Also: a key is nil")
		}
	}
	return func(g *config) { g.also = append(g.also, keys...); g.forLock = append(g.forLock, "Also") }
}

// Render replaces how a request that may not run is answered. When render is
// called, the request is aborted, and the status and Retry-After are set but not
// written; render may change them. It must not call c.Next.
func Render(render func(c *gin.Context, p Problem)) Option {
	if render == nil {
		panic("httpmw: Render: the function is nil")
	}
	return func(g *config) { g.render = render }
}

// Skip lets requests for which skip returns true run without the middleware.
func Skip(skip func(c *gin.Context) bool) Option {
	if skip == nil {
		panic("httpmw: Skip: the function is nil")
	}
	return func(g *config) { g.skip = skip }
}

// BodyLimit sets the length of the longest body, in bytes, that is read, 1 MiB by
// default; longer ones are answered with 413. Lock reads bodies to look for a key
// in them: where no key is in the body it refuses nothing. Idempotent reads all
// of them, unless Fingerprint says otherwise. It panics if n is not positive.
func BodyLimit(n int64) Option {
	if n <= 0 {
		panic(fmt.Sprintf("httpmw: BodyLimit is %d, it must be positive", n))
	}
	return func(g *config) { g.limit = min(n, math.MaxInt64-1) }
}

// ProblemBase sets what stands before the words of the package documentation in
// the type of an answer: "https://pay.example/problems/" makes
// "https://pay.example/problems/lock-busy". It panics if uri is empty or no URI.
func ProblemBase(uri string) Option {
	if _, err := url.Parse(uri); err != nil || uri == "" {
		panic(fmt.Sprintf("httpmw: ProblemBase is %q, which is no URI", uri))
	}
	return func(g *config) { g.base = uri }
}

// configure adds up the options of a middleware.
func configure(middleware string, opts []Option) config {
	g := config{render: render, limit: defaultLimit, base: defaultBase, policy: newPolicy()}
	for _, o := range opts {
		if o == nil {
			panic("httpmw: " + middleware + ": an option is nil")
		}
		o(&g)
	}
	return g
}
