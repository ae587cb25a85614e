package guard

import (
	"math"
	"net/url"

	"github.com/lockkit/lockkit/core"
)

// Option is a setting of one middleware. The function that makes an option panics if
// its value is not allowed. Lock panics for an option that is only for Idempotent, and
// Idempotent for an option that is only for Lock.
type Option func(*Config)

// Config holds the options of one middleware.
type Config struct {
	pkg     Package
	acquire []core.AcquireOption
	also    []KeyFunc
	open    bool // let requests run if the store is unavailable
	render  func(Exchange, Problem)
	skip    func(Exchange) bool
	report  func(Exchange, error)
	limit   int64
	base    string
	policy
}

// Report calls report with the reason of each refusal with status 500 and above, except
// for contention.
func Report(report func(Exchange, error)) Option {
	return func(g *Config) { g.report = report }
}

// Acquire sets the options with which a Lock acquires.
func (p Package) Acquire(opts []core.AcquireOption) Option {
	opts = append([]core.AcquireOption(nil), opts...)
	for _, o := range opts {
		if o == nil {
			p.panic("Acquire: an option is nil")
		}
	}
	return func(g *Config) { g.acquire = append(g.acquire, opts...); g.forLock = append(g.forLock, "Acquire") }
}

// Also makes a Lock lock more keys. inner converts them to KeyFuncs.
func Also[F any](p Package, keys []F, inner func(F) KeyFunc) Option {
	also := make([]KeyFunc, len(keys))
	for i, k := range keys {
		if also[i] = inner(k); also[i] == nil {
			p.panic("Also: a key is nil")
		}
	}
	return func(g *Config) { g.also = append(g.also, also...); g.forLock = append(g.forLock, "Also") }
}

// FailOpen lets a Lock's requests run without the lock if the store is unavailable.
func FailOpen() Option {
	return func(g *Config) { g.open = true; g.forLock = append(g.forLock, "FailOpen") }
}

// Render replaces the response to a refused request.
func Render(render func(x Exchange, p Problem)) Option {
	return func(g *Config) { g.render = render }
}

// Skip lets requests run without the middleware.
func Skip(skip func(x Exchange) bool) Option {
	return func(g *Config) { g.skip = skip }
}

// BodyLimit sets the maximum length of a body that is read, in bytes.
func (p Package) BodyLimit(n int64) Option {
	if n <= 0 {
		p.panic("BodyLimit: %d is out of range (at least 1)", n)
	}
	return func(g *Config) { g.limit = min(n, math.MaxInt64-1) }
}

// ProblemBase sets the text before the name in the type of a problem.
func (p Package) ProblemBase(uri string) Option {
	if _, err := url.Parse(uri); err != nil || uri == "" {
		p.panic("ProblemBase: %q is no URI", uri)
	}
	return func(g *Config) { g.base = uri }
}

func configure[O ~func(*Config)](p Package, middleware string, opts []O) Config {
	g := Config{pkg: p, render: render, limit: DefaultLimit, base: defaultBase, policy: newPolicy()}
	for _, o := range opts {
		if o == nil {
			p.panic("%s: an option is nil", middleware)
		}
		o(&g)
	}
	return g
}
