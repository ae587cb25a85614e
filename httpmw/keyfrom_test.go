package httpmw_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/httpmw"
)

func TestKeyFrom(t *testing.T) { onEach(t, testKeyFrom) }

func testKeyFrom(t *testing.T, mw framework) {
	t.Parallel()
	const form = "application/x-www-form-urlencoded"
	long := strings.Repeat("x", 512)
	for _, c := range []struct {
		name   string
		key    httpmw.KeyFunc
		path   string // with query
		body   string
		header []string
		detail string // the detail of the 400
	}{
		{name: "a header", key: mw.Header("webhook-id"), header: []string{"Webhook-Id", "msg_1"}},
		{name: "a header with quotes", key: mw.Header("X-Idempotency-Key"), header: []string{"X-Idempotency-Key", `"a", b`}},
		{name: "a field of the body", key: mw.JSON("payment.request_id"), body: `{"payment":{"request_id":7}}`},
		{name: "a field of a form", key: mw.Form("request"), body: "request=7", header: []string{"Content-Type", form}},
		{name: "a query parameter", key: mw.Query("request"), path: "?request=7"},
		{name: "joined parts", key: mw.Join(mw.Query("a"), mw.Query("b")), path: "?a=1&b=2"},
		{name: "the longest key", key: mw.Query("a"), path: "?a=" + long},

		{name: "no header", key: mw.Header("webhook-id"), header: []string{"Idempotency-Key", "k"}, detail: `Header "webhook-id" is missing.`},
		{name: "an empty header", key: mw.Header("webhook-id"), header: []string{"Webhook-Id", ""}, detail: `Header "webhook-id" is empty.`},
		{name: "two headers", key: mw.Header("webhook-id"), header: []string{"Webhook-Id", "a", "Webhook-Id", "a"}, detail: `Header "webhook-id" is there more than once.`},
		{name: "null", key: mw.JSON("id"), body: `{"id":null}`, detail: `JSON field "id" is neither a string nor an integer.`},
		{name: "a part less", key: mw.Join(mw.Query("a"), mw.Query("b")), path: "?a=1", detail: `Query parameter "b" is missing.`},
		{name: "an empty key", key: func(*gin.Context) (string, error) { return "", nil }, detail: "Idempotency key is missing."},
		{name: "a control character", key: mw.Query("a"), path: "?a=1%1f2", detail: `Query parameter "a" contains a control character.`},
		{name: "the separator", key: mw.Query("a"), path: "?a=1%E2%90%9F2", detail: "Idempotency key contains U+241F."},
		{name: "parts that are too long", key: mw.Join(mw.Query("a"), mw.Query("b")), path: "?b=2&a=" + long, detail: "Idempotency key is too long, 512 bytes are allowed."},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, runs := mw.newSite(t), atomic.Int32{}
			s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller(), mw.Key(mw.Header("Other")), mw.Key(c.key)), counted(&runs))
			first := s.send("POST", "/"+c.path, c.body, c.header...)
			again := s.send("POST", "/"+c.path, c.body, c.header...)
			if c.detail == "" {
				if first.body != "run 1" || again.body != "run 1" || !again.isReplay() {
					t.Errorf("got %d %q, then %d %q", first.status, first.body, again.status, again.body)
				}
				return
			}
			p := again.problem(t, http.StatusBadRequest)
			if p["type"] != base+"idempotency-key-invalid" || p["detail"] != c.detail || runs.Load() != 0 {
				t.Errorf("got %v after %d runs, want %q", p, runs.Load(), c.detail)
			}
		})
	}

	t.Run("the same key by another source", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		o := s.runs()
		byHeader := mw.Idempotent(o, mw.AnyCaller())
		byQuery := mw.Idempotent(o, mw.AnyCaller(), mw.Key(mw.Query("key")), mw.Fingerprint(mw.AnyCaller()))
		inBody := mw.Idempotent(o, mw.AnyCaller(), mw.Key(mw.JSON("key")))
		s.POST("/", func(c *gin.Context) {
			switch {
			case c.Query("key") != "":
				byQuery(c)
			case c.GetHeader("Idempotency-Key") != "":
				byHeader(c)
			default:
				inBody(c)
			}
		}, counted(&runs))
		body := `{"key":"a:1"}`
		s.send("POST", "/", body, "Idempotency-Key", "a:1")
		if r := s.send("POST", "/", body); r.body != "run 1" || !r.isReplay() {
			t.Errorf("got %d %q", r.status, r.body)
		}
		s.send("POST", "/?key=a:1", body).problem(t, http.StatusUnprocessableEntity)
	})

	t.Run("quotes are part of it", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller(), mw.Key(mw.Header("webhook-id"))), counted(&runs))
		for i, key := range []string{`a`, `"a"`, `a`, `"a"`} {
			if r := s.send("POST", "/", "", "Webhook-Id", key); r.body != fmt.Sprintf("run %d", i%2+1) || r.isReplay() != (i > 1) {
				t.Errorf("request %d: got %d %q %v", i, r.status, r.body, r.header)
			}
		}
	})

	t.Run("parts that run into each other", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		key := func(c *gin.Context) (string, error) {
			if c.Query("b") == "" {
				return mw.Query("a")(c)
			}
			return mw.Join(mw.Query("a"), mw.Query("b"))(c)
		}
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller(), mw.Key(key), mw.Fingerprint(mw.AnyCaller())), counted(&runs))
		for _, path := range []string{"/?a=1&b=2", "/?a=1:2", "/?a=1,2", "/?a=12", "/?a=1&b=2:3", "/?a=1:2&b=3"} {
			if r := s.send("POST", path, ""); r.status != http.StatusCreated || r.isReplay() {
				t.Errorf("%s: got %d %q", path, r.status, r.body)
			}
		}
	})

	t.Run("a key function that fails", func(t *testing.T) {
		t.Parallel()
		s, errs := mw.newSite(t), errorsOf{}
		failing := func(*gin.Context) (string, error) { return "", errors.New("secret") }
		s.POST("/", errs.collect, mw.Idempotent(s.runs(), mw.AnyCaller(), mw.Key(failing), mw.Optional()), mustNotRun(t))
		r := s.send("POST", "/", "")
		if p := r.problem(t, http.StatusInternalServerError); p["type"] != base+"idempotency-failed" || strings.Contains(r.body, "secret") {
			t.Errorf("got %q", r.body)
		}
		if err := errs.only(t); !strings.Contains(err.Error(), "secret") {
			t.Errorf("c.Errors has %v", err)
		}
	})

	t.Run("of Lock", func(t *testing.T) {
		t.Parallel()
		l, _ := newRuns(t)
		for name, o := range map[string]option{"Key": mw.Key(mw.AnyCaller()), "Optional": mw.Optional()} {
			func() {
				defer func() {
					if text, _ := recover().(string); !strings.Contains(text, name) {
						t.Errorf("%s: got %q", name, text)
					}
				}()
				mw.Lock(l, "order", mw.AnyCaller(), o)
			}()
		}
	})
	t.Run("of nil", func(t *testing.T) {
		t.Parallel()
		defer func() {
			if recover() != mw.pkg+": Key: the function is nil" {
				t.Error("it did not panic")
			}
		}()
		mw.Key(nil)
	})
}

func TestOptional(t *testing.T) { onEach(t, testOptional) }

func testOptional(t *testing.T, mw framework) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		key    httpmw.KeyFunc // nil: the header
		body   string
		header []string
		runs   int32 // the number of runs after two requests
	}{
		{name: "no header", runs: 2},
		{name: "a header", header: []string{"Idempotency-Key", "k"}, runs: 1},
		{name: "an empty header", header: []string{"Idempotency-Key", ""}},
		{name: "two headers", header: []string{"Idempotency-Key", "a", "Idempotency-Key", "b"}},
		{name: "no field", key: mw.JSON("key"), body: `{"amount":5}`, runs: 2},
		{name: "no object around the field", key: mw.JSON("a.key"), body: `{"amount":5}`, runs: 2},
		{name: "a field", key: mw.JSON("key"), body: `{"amount":5,"key":"k"}`, runs: 1},
		{name: "null", key: mw.JSON("key"), body: `{"key":null}`},
		{name: "an empty field", key: mw.JSON("key"), body: `{"key":""}`},
		{name: "a field in another case", key: mw.JSON("key"), body: `{"Key":"k","key":"k"}`},
		{name: "no part", key: mw.Join(mw.AnyCaller(), mw.Header("webhook-id")), runs: 2},
		{name: "one part of two", key: mw.Join(mw.Header("a"), mw.Header("b")), header: []string{"b", "1"}, runs: 2},
		{name: "an empty key", key: func(*gin.Context) (string, error) { return "", nil }, runs: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, runs := mw.newSite(t), atomic.Int32{}
			opts := []option{mw.Optional()}
			if c.key != nil {
				opts = append(opts, mw.Key(c.key))
			}
			scope := func(c *gin.Context) (string, error) {
				if c.GetHeader("Idempotency-Key") == "" && len(opts) == 1 {
					t.Error("the scope of a request without a key was asked for")
				}
				return "any", nil
			}
			s.POST("/", mw.Idempotent(s.runs(), scope, opts...), func(gc *gin.Context) {
				if body, err := gc.GetRawData(); string(body) != c.body || err != nil {
					t.Errorf("the handler reads %q, %v", body, err)
				}
				counted(&runs)(gc)
			})
			first, again := s.send("POST", "/", c.body, c.header...), s.send("POST", "/", c.body, c.header...)
			if c.runs == 0 {
				first.problem(t, http.StatusBadRequest)
			} else if first.body != "run 1" || again.isReplay() != (c.runs == 1) {
				t.Errorf("got %d %q, then %d %q", first.status, first.body, again.status, again.body)
			}
			if runs.Load() != c.runs {
				t.Errorf("%d runs, want %d", runs.Load(), c.runs)
			}
		})
	}
}
