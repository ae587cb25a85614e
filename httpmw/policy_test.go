package httpmw_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw"
)

func TestIdempotentOptions(t *testing.T) { onEachKey(t, testIdempotentOptions) }

func testIdempotentOptions(t *testing.T, mw framework) {
	t.Parallel()

	t.Run("Render and ProblemBase", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		render := func(c *gin.Context, p httpmw.Problem) {
			if p.Lock != "" || p.Err == nil || !c.IsAborted() || c.Writer.Status() != p.Status {
				t.Errorf("got %+v", p)
			}
			c.JSON(http.StatusTeapot, gin.H{"kind": p.Type})
		}
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller(), mw.ProblemBase("urn:x:"), mw.Render(render)), mustNotRun(t))
		if r := s.pay("", "/", ""); r.status != http.StatusTeapot || r.body != `{"kind":"urn:x:idempotency-key-invalid"}` {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})

	t.Run("two middlewares", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		shared := make([]option, 0, 4)
		shared = append(shared, mw.KeepHeaders("X-A"))
		handler := func(c *gin.Context) {
			c.Header("X-A", "a")
			c.Header("X-B", "b")
			counted(&runs)(c)
		}
		s.POST("/a", mw.Idempotent(s.runs(), mw.AnyCaller(), shared...), handler)
		s.POST("/b", mw.Idempotent(s.runs(), mw.AnyCaller(), append(shared, mw.KeepHeaders("X-B"))...), handler)
		for path, want := range map[string]string{"/a": "", "/b": "b"} {
			s.pay(path, path, "")
			if r := s.pay(path, path, ""); r.header.Get("X-A") != "a" || r.header.Get("X-B") != want {
				t.Errorf("%s: got %v", path, r.header)
			}
		}
	})

	s := mw.newSite(t)
	o, scope := s.runs(), mw.AnyCaller()
	for name, build := range map[string]func(){
		"no Once":                 func() { mw.Idempotent(nil, scope) },
		"no scope":                func() { mw.Idempotent(o, nil) },
		"a nil option":            func() { mw.Idempotent(o, scope, nil) },
		"Acquire of a Lock":       func() { mw.Idempotent(o, scope, mw.Acquire(core.Wait(0))) },
		"Also of a Lock":          func() { mw.Idempotent(o, scope, mw.Also(scope)) },
		"KeepIf in a Lock":        func() { mw.Lock(s.locker, "x", scope, mw.KeepIf(func(httpmw.Kept) bool { return true })) },
		"Methods in a Lock":       func() { mw.Lock(s.locker, "x", scope, mw.Methods("POST")) },
		"AnswerLimit in a Lock":   func() { mw.Lock(s.locker, "x", scope, mw.AnswerLimit(1)) },
		"Fingerprint in a Lock":   func() { mw.Lock(s.locker, "x", scope, mw.Fingerprint(scope)) },
		"KeepHeaders in a Lock":   func() { mw.Lock(s.locker, "x", scope, mw.KeepHeaders("X-A")) },
		"a nil policy":            func() { mw.KeepIf(nil) },
		"a nil fingerprint":       func() { mw.Fingerprint(nil) },
		"an answer of nothing":    func() { mw.AnswerLimit(0) },
		"no methods":              func() { mw.Methods() },
		"a method without a name": func() { mw.Methods("POST", "") },
		"a method in lower case":  func() { mw.Methods("post") },
		"a safe method":           func() { mw.Methods("GET") },
		"a header without a name": func() { mw.KeepHeaders("") },
		"a Once of its own":       func() { mw.Idempotent(&once.Once{}, scope) },
		"a header with a blank":   func() { mw.KeepHeaders("X-A ") },
		"cookies":                 func() { mw.KeepHeaders("X-A", "set-cookie") },
		"the date":                func() { mw.KeepHeaders("Date") },
		"CORS":                    func() { mw.KeepHeaders("Access-Control-Allow-Origin") },
		"headers of a proxy":      func() { mw.KeepHeaders("proxy-authenticate") },
		"the mark of a replay":    func() { mw.KeepHeaders("Idempotent-Replayed") },
	} {
		t.Run(name+" panics", func(t *testing.T) {
			t.Parallel()
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			build()
		})
	}
}
