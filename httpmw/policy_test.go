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

func TestIdempotentOptions(t *testing.T) {
	t.Parallel()

	t.Run("Render and ProblemBase are for refusals, as in Lock", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		render := func(c *gin.Context, p httpmw.Problem) {
			if p.Lock != "" || p.Err == nil || !c.IsAborted() || c.Writer.Status() != p.Status {
				t.Errorf("got %+v", p)
			}
			c.JSON(http.StatusTeapot, gin.H{"kind": p.Type})
		}
		s.POST("/", httpmw.Idempotent(s.runs(), httpmw.AnyCaller(), httpmw.ProblemBase("urn:x:"), httpmw.Render(render)), mustNotRun(t))
		if r := s.send("POST", "/", ""); r.status != http.StatusTeapot || r.body != `{"kind":"urn:x:idempotency-key-invalid"}` {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})

	t.Run("two middlewares do not share settings", func(t *testing.T) {
		t.Parallel()
		s, runs := newSite(t), atomic.Int32{}
		shared := make([]httpmw.Option, 0, 4)
		shared = append(shared, httpmw.KeepHeaders("X-A"))
		handler := func(c *gin.Context) {
			c.Header("X-A", "a")
			c.Header("X-B", "b")
			counted(&runs)(c)
		}
		s.POST("/a", httpmw.Idempotent(s.runs(), httpmw.AnyCaller(), shared...), handler)
		s.POST("/b", httpmw.Idempotent(s.runs(), httpmw.AnyCaller(), append(shared, httpmw.KeepHeaders("X-B"))...), handler)
		for path, want := range map[string]string{"/a": "", "/b": "b"} {
			s.pay(path, path, "")
			if r := s.pay(path, path, ""); r.header.Get("X-A") != "a" || r.header.Get("X-B") != want {
				t.Errorf("%s: got %v", path, r.header)
			}
		}
	})

	s := newSite(t)
	o, scope := s.runs(), httpmw.AnyCaller()
	for name, build := range map[string]func(){
		"no Once":                  func() { httpmw.Idempotent(nil, scope) },
		"no scope":                 func() { httpmw.Idempotent(o, nil) },
		"a nil option":             func() { httpmw.Idempotent(o, scope, nil) },
		"Acquire, which is Lock's": func() { httpmw.Idempotent(o, scope, httpmw.Acquire(core.Wait(0))) },
		"Also, which is Lock's":    func() { httpmw.Idempotent(o, scope, httpmw.Also(scope)) },
		"Keep in a Lock":           func() { httpmw.Lock(s.locker, "x", scope, httpmw.Keep(func(int) bool { return true })) },
		"Methods in a Lock":        func() { httpmw.Lock(s.locker, "x", scope, httpmw.Methods("POST")) },
		"AnswerLimit in a Lock":    func() { httpmw.Lock(s.locker, "x", scope, httpmw.AnswerLimit(1)) },
		"Fingerprint in a Lock":    func() { httpmw.Lock(s.locker, "x", scope, httpmw.Fingerprint(scope)) },
		"KeepHeaders in a Lock":    func() { httpmw.Lock(s.locker, "x", scope, httpmw.KeepHeaders("X-A")) },
		"a nil policy":             func() { httpmw.Keep(nil) },
		"a nil fingerprint":        func() { httpmw.Fingerprint(nil) },
		"an answer of nothing":     func() { httpmw.AnswerLimit(0) },
		"no methods":               func() { httpmw.Methods() },
		"a method without a name":  func() { httpmw.Methods("POST", "") },
		"a method in lower case":   func() { httpmw.Methods("post") },
		"a safe method":            func() { httpmw.Methods("GET") },
		"a header without a name":  func() { httpmw.KeepHeaders("") },
		"a Once of its own":        func() { httpmw.Idempotent(&once.Once{}, scope) },
		"a header with a blank":    func() { httpmw.KeepHeaders("X-A ") },
		"cookies":                  func() { httpmw.KeepHeaders("X-A", "set-cookie") },
		"the date":                 func() { httpmw.KeepHeaders("Date") },
		"CORS":                     func() { httpmw.KeepHeaders("Access-Control-Allow-Origin") },
		"a proxy's headers":        func() { httpmw.KeepHeaders("proxy-authenticate") },
		"the mark of a replay":     func() { httpmw.KeepHeaders("Idempotent-Replayed") },
	} {
		t.Run(name+" panics at construction", func(t *testing.T) {
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
