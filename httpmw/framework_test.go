package httpmw_test

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw"
	"github.com/lockkit/lockkit/httpmw/stdmw"
)

// framework is httpmw or stdmw, under the names of httpmw. The tests mount its
// middlewares in gin, directly or as middlewares of net/http.
type framework struct {
	name       string
	pkg        string // the name of the package, with which panics and errors begin
	header     string // the header of the idempotency key
	Lock       func(l *core.Locker, name string, key httpmw.KeyFunc, opts ...option) gin.HandlerFunc
	Idempotent func(o *once.Once, scope httpmw.KeyFunc, opts ...option) gin.HandlerFunc

	Param, Query, Header, Form, JSON func(name string) httpmw.KeyFunc
	Join                             func(parts ...httpmw.KeyFunc) httpmw.KeyFunc
	AnyCaller                        func() httpmw.KeyFunc

	Acquire     func(opts ...core.AcquireOption) option
	Also        func(keys ...httpmw.KeyFunc) option
	FailOpen    func() option
	Render      func(render func(c *gin.Context, p httpmw.Problem)) option
	Skip        func(skip func(c *gin.Context) bool) option
	BodyLimit   func(n int64) option
	ProblemBase func(uri string) option
	KeepIf      func(keep func(httpmw.Kept) bool) option
	KeepHeaders func(names ...string) option
	AnswerLimit func(n int64) option
	Methods     func(methods ...string) option
	Fingerprint func(of httpmw.KeyFunc) option
	Key         func(of httpmw.KeyFunc) option
	Optional    func() option
	CallName    func(name string) option
	Detached    func() option
}

// option is an option of a framework, or nil.
type option any

func optionsOf[O any](opts []option) []O {
	own := make([]O, len(opts))
	for i, o := range opts {
		if o != nil {
			own[i] = o.(O)
		}
	}
	return own
}

// onEach runs a part of the suite on each framework.
func onEach(t *testing.T, part func(t *testing.T, mw framework)) {
	t.Helper()
	t.Parallel()
	oneByOne(t, part)
}

// oneByOne works like onEach, for parts that must run alone.
func oneByOne(t *testing.T, part func(t *testing.T, mw framework)) {
	t.Helper()
	for _, mw := range []framework{onGin, onNetHTTP} {
		t.Run(mw.name, func(t *testing.T) { part(t, mw) })
	}
}

// onEachKey works like onEach, for parts with an Idempotent. It also runs each part
// with keys of the option Key.
func onEachKey(t *testing.T, part func(t *testing.T, mw framework)) {
	t.Helper()
	onEach(t, part)
	for _, mw := range []framework{onGin.withKey(), onNetHTTP.withKey()} {
		t.Run(mw.name, func(t *testing.T) { part(t, mw) })
	}
}

// withKey returns mw with an Idempotent that takes keys from the header X-Request, and
// runs requests without that header.
func (mw framework) withKey() framework {
	idempotent := mw.Idempotent
	mw.name, mw.header = mw.name+"-key", "X-Request"
	mw.Idempotent = func(o *once.Once, scope httpmw.KeyFunc, opts ...option) gin.HandlerFunc {
		return idempotent(o, scope, append([]option{mw.Key(mw.Header(mw.header)), mw.Optional()}, opts...)...)
	}
	return mw
}

// renamed sends idempotency keys in another header.
type renamed struct {
	http.RoundTripper
	header string
}

func (t renamed) RoundTrip(r *http.Request) (*http.Response, error) {
	if keys, ok := r.Header["Idempotency-Key"]; ok {
		r = r.Clone(r.Context())
		delete(r.Header, "Idempotency-Key")
		r.Header[t.header] = keys
	}
	return t.RoundTripper.RoundTrip(r)
}

// ofGin skips the test unless mw is httpmw.
func (mw framework) ofGin(t *testing.T) {
	t.Helper()
	if mw.pkg != onGin.pkg {
		t.Skip("about what gin alone has")
	}
}

var onGin = framework{
	name: "gin", pkg: "httpmw", header: "Idempotency-Key",
	Lock: func(l *core.Locker, name string, key httpmw.KeyFunc, opts ...option) gin.HandlerFunc {
		return httpmw.Lock(l, name, key, optionsOf[httpmw.Option](opts)...)
	},
	Idempotent: func(o *once.Once, scope httpmw.KeyFunc, opts ...option) gin.HandlerFunc {
		return httpmw.Idempotent(o, scope, optionsOf[httpmw.Option](opts)...)
	},
	Param: httpmw.Param, Query: httpmw.Query, Header: httpmw.Header, Form: httpmw.Form, JSON: httpmw.JSON,
	Join: httpmw.Join, AnyCaller: httpmw.AnyCaller,

	Acquire:     func(opts ...core.AcquireOption) option { return httpmw.Acquire(opts...) },
	Also:        func(keys ...httpmw.KeyFunc) option { return httpmw.Also(keys...) },
	FailOpen:    func() option { return httpmw.FailOpen() },
	Render:      func(render func(c *gin.Context, p httpmw.Problem)) option { return httpmw.Render(render) },
	Skip:        func(skip func(c *gin.Context) bool) option { return httpmw.Skip(skip) },
	BodyLimit:   func(n int64) option { return httpmw.BodyLimit(n) },
	ProblemBase: func(uri string) option { return httpmw.ProblemBase(uri) },
	KeepIf:      func(keep func(httpmw.Kept) bool) option { return httpmw.KeepIf(keep) },
	KeepHeaders: func(names ...string) option { return httpmw.KeepHeaders(names...) },
	AnswerLimit: func(n int64) option { return httpmw.AnswerLimit(n) },
	Methods:     func(methods ...string) option { return httpmw.Methods(methods...) },
	Fingerprint: func(of httpmw.KeyFunc) option { return httpmw.Fingerprint(of) },
	Key:         func(of httpmw.KeyFunc) option { return httpmw.Key(of) },
	Optional:    func() option { return httpmw.Optional() },
	CallName:    func(name string) option { return httpmw.CallName(name) },
	Detached:    func() option { return httpmw.Detached() },
}

var onNetHTTP = framework{
	name: "net-http", pkg: "stdmw", header: "Idempotency-Key",
	Lock: func(l *core.Locker, name string, key httpmw.KeyFunc, opts ...option) gin.HandlerFunc {
		return inGin(stdmw.Lock(l, name, toNetHTTP(key), append(optionsOf[stdmw.Option](opts), onError)...))
	},
	Idempotent: func(o *once.Once, scope httpmw.KeyFunc, opts ...option) gin.HandlerFunc {
		return inGin(stdmw.Idempotent(o, toNetHTTP(scope), append(optionsOf[stdmw.Option](opts), onError)...))
	},
	Param:     func(name string) httpmw.KeyFunc { return toGin(stdmw.Path(name)) },
	Query:     func(name string) httpmw.KeyFunc { return toGin(stdmw.Query(name)) },
	Header:    func(name string) httpmw.KeyFunc { return toGin(stdmw.Header(name)) },
	Form:      func(name string) httpmw.KeyFunc { return toGin(stdmw.Form(name)) },
	JSON:      func(path string) httpmw.KeyFunc { return toGin(stdmw.JSON(path)) },
	Join:      func(parts ...httpmw.KeyFunc) httpmw.KeyFunc { return toGin(stdmw.Join(allToNetHTTP(parts)...)) },
	AnyCaller: func() httpmw.KeyFunc { return toGin(stdmw.AnyCaller()) },

	Acquire:  func(opts ...core.AcquireOption) option { return stdmw.Acquire(opts...) },
	Also:     func(keys ...httpmw.KeyFunc) option { return stdmw.Also(allToNetHTTP(keys)...) },
	FailOpen: func() option { return stdmw.FailOpen() },
	Render: func(render func(c *gin.Context, p httpmw.Problem)) option {
		if render == nil {
			return stdmw.Render(nil)
		}
		return stdmw.Render(func(w http.ResponseWriter, r *http.Request, p stdmw.Problem) {
			c := ginOf(r)
			before, g := c.Writer, ginWriter(w)
			g.WriteHeader(p.Status)
			g.chosen = false // stdmw sets the status itself
			c.Writer = g
			c.Abort()
			render(c, p)
			g.end()
			c.Writer = before
		})
	},
	Skip: func(skip func(c *gin.Context) bool) option {
		if skip == nil {
			return stdmw.Skip(nil)
		}
		return stdmw.Skip(func(r *http.Request) bool { return skip(ginOf(r)) })
	},
	BodyLimit:   func(n int64) option { return stdmw.BodyLimit(n) },
	ProblemBase: func(uri string) option { return stdmw.ProblemBase(uri) },
	KeepIf:      func(keep func(httpmw.Kept) bool) option { return stdmw.KeepIf(keep) },
	KeepHeaders: func(names ...string) option { return stdmw.KeepHeaders(names...) },
	AnswerLimit: func(n int64) option { return stdmw.AnswerLimit(n) },
	Methods:     func(methods ...string) option { return stdmw.Methods(methods...) },
	Fingerprint: func(of httpmw.KeyFunc) option { return stdmw.Fingerprint(toNetHTTP(of)) },
	Key:         func(of httpmw.KeyFunc) option { return stdmw.Key(toNetHTTP(of)) },
	Optional:    func() option { return stdmw.Optional() },
	CallName:    func(name string) option { return stdmw.CallName(name) },
	Detached:    func() option { return stdmw.Detached() },
}

var onError = stdmw.OnError(func(r *http.Request, err error) { _ = ginOf(r).Error(err) })

// ginKey is the key of the gin context in the context of a request.
type ginKey struct{}

func ginOf(r *http.Request) *gin.Context { return r.Context().Value(ginKey{}).(*gin.Context) }

// newEngine returns an engine for the middlewares of inGin.
func newEngine() *gin.Engine {
	e := gin.New()
	e.Use(withGin)
	return e
}

func withGin(c *gin.Context) {
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), ginKey{}, c))
}

func toGin(f stdmw.KeyFunc) httpmw.KeyFunc {
	return func(c *gin.Context) (string, error) { return f(c.Request) }
}

func toNetHTTP(f httpmw.KeyFunc) stdmw.KeyFunc {
	if f == nil {
		return nil
	}
	return func(r *http.Request) (string, error) {
		c := ginOf(r)
		before := c.Request
		c.Request = r
		defer func() { c.Request = before }()
		return f(c)
	}
}

func allToNetHTTP(list []httpmw.KeyFunc) []stdmw.KeyFunc {
	own := make([]stdmw.KeyFunc, len(list))
	for i, f := range list {
		own[i] = toNetHTTP(f)
	}
	return own
}

// innerKey is the key in a gin context for the writer that stdmw has passed to the
// inner handlers.
const innerKey = "inner"

// inGin mounts a middleware of net/http in gin. The inner handlers write to gin's own
// writer, which writes to the middleware's writer.
func inGin(middleware func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		r, w, ran := c.Request, c.Writer, false
		out := committing{w}
		for _, p := range c.Params {
			r.SetPathValue(p.Key, p.Value)
		}
		r.Pattern = c.FullPath()
		next := func(inner http.ResponseWriter, under *http.Request) {
			ran = true
			defer func() { c.Request, c.Writer = r, w }()
			c.Request = under
			g, before := ginWriter(inner), len(c.Errors)
			if inner != out {
				c.Writer = g
				c.Set(innerKey, inner)
			}
			c.Next()
			for _, err := range c.Errors[before:] {
				stdmw.Error(under.Context(), err.Err)
			}
			g.end()
		}
		middleware(http.HandlerFunc(next)).ServeHTTP(out, r)
		if !ran {
			c.Abort()
		}
	}
}

// committing adapts gin's writer to net/http. It sends each status at once, except 499,
// which is only for the access log.
type committing struct{ gin.ResponseWriter }

func (w committing) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w committing) WriteHeader(status int) {
	if own, ok := w.ResponseWriter.(interface{ Unwrap() http.ResponseWriter }); ok && status < 200 {
		own.Unwrap().WriteHeader(status)
		return
	}
	w.ResponseWriter.WriteHeader(status)
	if status != 499 {
		w.WriteHeaderNow()
	}
}

// chosen wraps gin's own writer, and records whether a status was set.
type chosen struct {
	gin.ResponseWriter
	chosen bool
}

var anyEngine = sync.OnceValue(func() *gin.Engine { return gin.New() })

func ginWriter(w http.ResponseWriter) *chosen {
	return &chosen{ResponseWriter: gin.CreateTestContextOnly(w, anyEngine()).Writer}
}

func (w *chosen) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *chosen) WriteHeader(status int) {
	w.chosen = w.chosen || status > 0
	w.ResponseWriter.WriteHeader(status)
}

// end writes a status that was set and not written, as gin does at the end of a
// request.
func (w *chosen) end() {
	if w.chosen {
		w.WriteHeaderNow()
	}
}
