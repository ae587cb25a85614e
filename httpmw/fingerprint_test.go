package httpmw_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gin-gonic/gin/binding"

	"github.com/lockkit/lockkit/core/proof/tally"
)

// request has the parts that can differ under one key.
type request struct{ method, path, body, contentType string }

func (r request) sendTo(s *site, key string) reply {
	s.t.Helper()
	return s.send(r.method, r.path, r.body, "Idempotency-Key", key, "Content-Type", r.contentType)
}

// TestMismatch checks requests that differ under one key. It covers hazard 60.
func TestMismatch(t *testing.T) { onEachKey(t, testMismatch) }

func testMismatch(t *testing.T, mw framework) {
	t.Parallel()
	first := request{"POST", "/orders/a%2Fb/pay?x=1&y=2&x=3", `{"amount":5}`, "application/json"}
	for _, c := range []struct {
		name  string
		other request
		same  bool
	}{
		{"the same request", first, true},
		{"query in another order", request{"POST", "/orders/a%2Fb/pay?y=2&x=1&x=3", first.body, first.contentType}, true},
		{"query in another spelling", request{"POST", "/orders/a%2Fb/pay?%78=1&y=%32&x=3", first.body, first.contentType}, true},
		{"media type in another spelling", request{"POST", first.path, first.body, "Application/JSON; charset=utf-8"}, true},
		{"another body", request{"POST", first.path, `{"amount":6}`, first.contentType}, false},
		{"the same body with a blank", request{"POST", first.path, `{"amount": 5}`, first.contentType}, false},
		{"a longer body", request{"POST", first.path, first.body + "\n", first.contentType}, false},
		{"no body", request{"POST", first.path, "", first.contentType}, false},
		{"another method", request{"PATCH", first.path, first.body, first.contentType}, false},
		{"another path", request{"POST", "/orders/a%2Fc/pay?x=1&y=2&x=3", first.body, first.contentType}, false},
		{"another path decoded the same", request{"POST", "/orders/a/b/pay?x=1&y=2&x=3", first.body, first.contentType}, false},
		{"another path that looks alike", request{"POST", "/orders/a%252Fb/pay?x=1&y=2&x=3", first.body, first.contentType}, false},
		{"another query", request{"POST", "/orders/a%2Fb/pay?x=1&y=3&x=3", first.body, first.contentType}, false},
		{"values in another order", request{"POST", "/orders/a%2Fb/pay?x=3&y=2&x=1", first.body, first.contentType}, false},
		{"a query that is malformed", request{"POST", "/orders/a%2Fb/pay?x=1&y=2&x=3&%zz", first.body, first.contentType}, false},
		{"no query", request{"POST", "/orders/a%2Fb/pay", first.body, first.contentType}, false},
		{"another media type", request{"POST", first.path, first.body, "text/plain"}, false},
		{"a media type that is malformed", request{"POST", first.path, first.body, "json;;"}, false},
	} {
		verb := map[bool]string{true: "replayed", false: "refused"}[c.same]
		t.Run(c.name+" "+verb, func(t *testing.T) {
			t.Parallel()
			s, runs := mw.newSite(t), atomic.Int32{}
			s.UseRawPath = true
			idempotent := mw.Idempotent(s.runs(), mw.AnyCaller())
			s.Any("/orders/:id/pay", idempotent, counted(&runs))
			s.Any("/orders/:id/b/pay", idempotent, counted(&runs))
			first.sendTo(s, "k")
			r := c.other.sendTo(s, "k")
			if c.same {
				if r.body != "run 1" || !r.isReplay() {
					t.Errorf("got %d %q", r.status, r.body)
				}
				return
			}
			p := r.problem(t, http.StatusUnprocessableEntity)
			if p["type"] != base+"idempotency-mismatch" || p["retry_after_ms"] != nil || runs.Load() != 1 {
				t.Errorf("got %v after %d runs", p, runs.Load())
			}
			if strings.Contains(r.body, "run 1") || r.isReplay() {
				t.Errorf("the answer says too much: %q", r.body)
			}
			if r := first.sendTo(s, "k"); r.body != "run 1" {
				t.Errorf("the first answer is gone: %d %q", r.status, r.body)
			}
		})
	}

	t.Run("another request after a failed one", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
			if runs.Add(1) == 1 {
				c.Status(http.StatusInternalServerError)
			}
		})
		s.pay("k", "/", "5 euros")
		s.pay("k", "/", "6 euros").problem(t, http.StatusUnprocessableEntity)
		if r := s.pay("k", "/", "5 euros"); r.status != http.StatusOK || runs.Load() != 2 {
			t.Errorf("got %d after %d runs", r.status, runs.Load())
		}
	})

	t.Run("body read outside", func(t *testing.T) {
		t.Parallel()
		s, runs, pushed := mw.newSite(t), atomic.Int32{}, errorsOf{}
		idempotent := mw.Idempotent(s.runs(), mw.AnyCaller())
		s.POST("/form", func(c *gin.Context) { _ = c.PostForm("csrf") }, idempotent, counted(&runs))
		s.POST("/scope", mw.Idempotent(s.runs(), func(c *gin.Context) (string, error) { return c.PostForm("amount")[:1], nil }), counted(&runs))
		s.POST("/cached", func(c *gin.Context) { _ = c.ShouldBindBodyWith(&struct{}{}, binding.JSON) }, idempotent, counted(&runs))
		for _, path := range []string{"/form", "/scope", "/cached"} {
			if path == "/cached" && mw.pkg != onGin.pkg {
				// The outer handler stores the body in gin's context, which stdmw does
				// not read.
				continue
			}
			five, six := "csrf=1&amount=15", "csrf=1&amount=16"
			contentType := "application/x-www-form-urlencoded"
			if path == "/cached" {
				five, six, contentType = `{"amount":5}`, `{"amount":6}`, "application/json"
			}
			s.pay(path, path, five, "Content-Type", contentType)
			if r := s.pay(path, path, five, "Content-Type", contentType); !r.isReplay() {
				t.Errorf("%s: got %d %q", path, r.status, r.body)
			}
			s.pay(path, path, six, "Content-Type", contentType).problem(t, http.StatusUnprocessableEntity)
		}
		s.POST("/json", pushed.collect, func(c *gin.Context) { _ = c.ShouldBindJSON(&struct{}{}) }, idempotent, mustNotRun(t))
		if p := s.pay("json", "/json", `{"amount":5}`).problem(t, http.StatusInternalServerError); p["type"] != base+"idempotency-failed" {
			t.Errorf("got %v", p)
		}
		if err := pushed.only(t); !strings.Contains(err.Error(), "the body was read before") {
			t.Errorf("c.Errors has %v", err)
		}
		s.POST("/multipart", func(c *gin.Context) { _, _ = c.MultipartForm() }, idempotent, mustNotRun(t))
		contentType, form := multipartForm(t, "note", "hi")
		s.pay("multipart", "/multipart", form, "Content-Type", contentType).problem(t, http.StatusInternalServerError)
	})

	t.Run("Fingerprint compares named fields", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		fields := mw.Fingerprint(mw.Join(mw.JSON("order"), mw.JSON("amount")))
		s.POST("/:id", mw.Idempotent(s.runs(), mw.AnyCaller(), fields), func(c *gin.Context) {
			if data, err := io.ReadAll(c.Request.Body); err != nil || len(data) == 0 {
				t.Errorf("the handler read %q, %v", data, err)
			}
			counted(&runs)(c)
		})
		s.pay("k", "/1", `{"order":"a","amount":5,"sent":"now"}`)
		if r := s.pay("k", "/1?try=2", `{"amount":5, "order":"a", "sent":"later"}`); !r.isReplay() {
			t.Errorf("got %d %q", r.status, r.body)
		}
		s.pay("k", "/1", `{"order":"a","amount":6}`).problem(t, http.StatusUnprocessableEntity)
		s.pay("k", "/2", `{"order":"a","amount":5}`).problem(t, http.StatusUnprocessableEntity)
		s.pay("k", "/1", `{"order":"a"}`).problem(t, http.StatusBadRequest)
		none := mw.Fingerprint(func(*gin.Context) (string, error) { return "", nil })
		s.POST("/none", mw.Idempotent(s.runs(), mw.AnyCaller(), none), mustNotRun(t))
		s.pay("k", "/none", "").problem(t, http.StatusBadRequest)
	})
}

func TestIdempotentBodies(t *testing.T) {
	largest := tally.AllTrials(20) << 19 // bytes
	each := onEach
	if tally.Wanted() {
		each = onEachKey
	}
	each(t, func(t *testing.T, mw framework) { testIdempotentBodies(t, mw, largest) })
}

func testIdempotentBodies(t *testing.T, mw framework, largest int) {
	t.Parallel()

	t.Run("bodies of any size and framing", func(t *testing.T) {
		t.Parallel()
		const raised = 16 << 20
		s, runs := mw.newSite(t), atomic.Int32{}
		echo := func(c *gin.Context) {
			runs.Add(1)
			data, err := io.ReadAll(c.Request.Body)
			cached, _ := c.Get(gin.BodyBytesKey)
			if err != nil || mw.pkg == onGin.pkg && string(cached.([]byte)) != string(data) {
				t.Errorf("read %d bytes, %v; gin has others", len(data), err)
			}
			c.Data(http.StatusOK, "application/octet-stream", data)
		}
		chunked := func(c *gin.Context) {
			if c.Request.ContentLength != -1 {
				t.Errorf("the length is %d", c.Request.ContentLength)
			}
		}
		idempotent := mw.Idempotent(s.runs(), mw.AnyCaller(), mw.BodyLimit(raised), mw.AnswerLimit(raised))
		s.POST("/whole", idempotent, echo)
		s.POST("/chunked", chunked, idempotent, echo)
		for _, c := range []struct {
			name, path string
			size       int
		}{
			{"empty", "/whole", 0}, {"one", "/whole", 1}, {"100KiB", "/whole", 100 << 10}, {"largest", "/whole", largest},
			{"chunked-one", "/chunked", 1}, {"chunked-100KiB", "/chunked", 100 << 10}, {"chunked-largest", "/chunked", largest},
		} {
			body := strings.Repeat("0123456789abcdef", c.size/16+1)[:c.size]
			before := runs.Load()
			for i := range 2 {
				req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+c.path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				if c.path == "/chunked" {
					req.ContentLength = -1
				}
				req.Header.Set("Idempotency-Key", c.name)
				resp, err := s.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || string(got) != body || (resp.Header.Get("Idempotent-Replayed") != "") != (i == 1) {
					t.Errorf("%s, request %d: got %d with %d bytes, %v", c.name, i+1, resp.StatusCode, len(got), err)
				}
			}
			if n := runs.Load() - before; n != 1 {
				t.Errorf("%s: %d ran", c.name, n)
			}
		}
		// The last byte of the body counts.
		body := []byte(strings.Repeat("x", largest))
		s.pay("last", "/whole", string(body))
		body[len(body)-1] = 'y'
		s.pay("last", "/whole", string(body)).problem(t, http.StatusUnprocessableEntity)
	})

	t.Run("body over the limit", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		s.POST("/default", mw.Idempotent(s.runs(), mw.AnyCaller()), counted(&runs))
		s.POST("/small", mw.Idempotent(s.runs(), mw.AnyCaller(), mw.BodyLimit(10)), counted(&runs))
		s.POST("/unbounded", mw.Idempotent(s.runs(), mw.AnyCaller(), mw.BodyLimit(math.MaxInt64)), counted(&runs))
		for path, most := range map[string]int{"/default": 1 << 20, "/small": 10} {
			r := s.pay(path, path, strings.Repeat("x", most+1))
			if p := r.problem(t, http.StatusRequestEntityTooLarge); p["type"] != base+"body-too-large" || !strings.Contains(fmt.Sprint(p["detail"]), fmt.Sprint(most)) {
				t.Errorf("got %v", p)
			}
			if r := s.pay(path, path, strings.Repeat("x", most)); r.status != http.StatusCreated {
				t.Errorf("got %d %q", r.status, r.body)
			}
		}
		if s.pay("u", "/unbounded", strings.Repeat("x", 1<<20+1)); runs.Load() != 3 {
			t.Errorf("%d ran, want 3", runs.Load())
		}
	})

	t.Run("body breaks off", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		outer := func(c *gin.Context) {
			c.Request.Body = io.NopCloser(io.MultiReader(strings.NewReader("half"), &failing{io.ErrUnexpectedEOF}))
		}
		s.POST("/", outer, mw.Idempotent(s.runs(), mw.AnyCaller()), mustNotRun(t))
		s.pay("k", "/", "x").problem(t, http.StatusBadRequest)
	})
}
