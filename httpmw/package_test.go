package httpmw_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw"
)

func newRuns(t *testing.T) (*core.Locker, *once.Once) {
	t.Helper()
	l, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	o, err := once.New(l)
	if err != nil {
		t.Fatal(err)
	}
	return l, o
}

func TestPanics_Package(t *testing.T) { onEach(t, testPanics_Package) }

func testPanics_Package(t *testing.T, mw framework) {
	t.Parallel()
	l, o := newRuns(t)
	id := mw.Query("id")
	for name, f := range map[string]func(){
		"a nil acquire option":     func() { mw.Acquire(nil) },
		"a nil further key":        func() { mw.Also(nil) },
		"a nil Render":             func() { mw.Render(nil) },
		"a nil Skip":               func() { mw.Skip(nil) },
		"a negative body limit":    func() { mw.BodyLimit(-1) },
		"an empty base":            func() { mw.ProblemBase("") },
		"a nil KeepIf":             func() { mw.KeepIf(nil) },
		"a header never kept":      func() { mw.KeepHeaders("Date") },
		"a negative answer limit":  func() { mw.AnswerLimit(-1) },
		"no methods":               func() { mw.Methods() },
		"a safe method":            func() { mw.Methods("GET") },
		"a nil fingerprint":        func() { mw.Fingerprint(nil) },
		"an empty call name":       func() { mw.CallName("") },
		"an empty path parameter":  func() { mw.Param("") },
		"an empty query parameter": func() { mw.Query("") },
		"an empty header":          func() { mw.Header("") },
		"an empty form field":      func() { mw.Form("") },
		"an empty JSON field":      func() { mw.JSON("") },
		"a Join of nothing":        func() { mw.Join() },
		"a Join of nil":            func() { mw.Join(nil) },
		"no locker":                func() { mw.Lock(nil, "order", id) },
		"no name":                  func() { mw.Lock(l, "", id) },
		"no key":                   func() { mw.Lock(l, "order", nil) },
		"a nil option":             func() { mw.Lock(l, "order", id, nil) },
		"a bad TTL":                func() { mw.Lock(l, "order", id, mw.Acquire(core.TTL(0))) },
		"Detached of a Lock":       func() { mw.Lock(l, "order", id, mw.Detached()) },
		"no Once":                  func() { mw.Idempotent(nil, id) },
		"a Once of nothing":        func() { mw.Idempotent(new(once.Once), id) },
		"no scope":                 func() { mw.Idempotent(o, nil) },
		"FailOpen of Idempotent":   func() { mw.Idempotent(o, id, mw.FailOpen()) },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, mw.pkg+": ") || strings.Count(text, "mw: ") != 1 {
					t.Errorf("%s: got %q, want a text that begins with %s", name, text, mw.pkg)
				}
			}()
			f()
		}()
	}
}

func TestErrors_Package(t *testing.T) { onEach(t, testErrors_Package) }

func testErrors_Package(t *testing.T, mw framework) {
	t.Parallel()
	l, o := newRuns(t)
	read := func(c *gin.Context) { _, _ = io.ReadAll(c.Request.Body) }
	pass := func(*gin.Context) {}
	for _, c := range []struct {
		name    string
		before  gin.HandlerFunc
		with    func(render option) gin.HandlerFunc
		request string // its Content-Type
		key     string
	}{
		{"a missing query parameter", pass, func(r option) gin.HandlerFunc { return mw.Lock(l, "order", mw.Query("id"), r) }, "", ""},
		{"a missing path parameter", pass, func(r option) gin.HandlerFunc { return mw.Lock(l, "order", mw.Param("id"), r) }, "", ""},
		{"a body of another type", pass, func(r option) gin.HandlerFunc { return mw.Lock(l, "order", mw.JSON("id"), r) }, "text/plain", ""},
		{"a malformed form", pass, func(r option) gin.HandlerFunc { return mw.Lock(l, "order", mw.Form("id"), r) }, "application/x-www-form-urlencoded", ""},
		{"no idempotency key", pass, func(r option) gin.HandlerFunc { return mw.Idempotent(o, mw.AnyCaller(), r) }, "", ""},
		{"a body that was read", read, func(r option) gin.HandlerFunc { return mw.Idempotent(o, mw.AnyCaller(), r) }, "", "k"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got error
			engine := newEngine()
			engine.POST("/", c.before, c.with(mw.Render(func(_ *gin.Context, p httpmw.Problem) { got = p.Err })), pass)
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("%zz"))
			r.Header.Set("Content-Type", c.request)
			if c.key != "" {
				r.Header.Set("Idempotency-Key", c.key)
			}
			engine.ServeHTTP(httptest.NewRecorder(), r)
			if got == nil || !strings.HasPrefix(got.Error(), mw.pkg+": ") || strings.Count(got.Error(), "mw: ") != 1 {
				t.Errorf("got %v, want an error that begins with %s", got, mw.pkg)
			}
		})
	}
}
