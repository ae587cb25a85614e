package httpmw_test

import (
	"bytes"
	"errors"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/httpmw"
)

const formType = "application/x-www-form-urlencoded"

func TestKeySources(t *testing.T) { onEach(t, testKeySources) }

func testKeySources(t *testing.T, mw framework) {
	t.Parallel()
	twoParts := func(c *gin.Context) (string, error) { return c.Query("a") + "\x1f" + c.Query("b"), nil }
	plain := func(value string) httpmw.KeyFunc {
		return func(*gin.Context) (string, error) { return value, nil }
	}
	for _, c := range []struct {
		name   string
		key    httpmw.KeyFunc
		path   string // the path of the POST, below /r/:id
		body   string
		header []string
		want   string // the key that is locked, unless the request is refused
		detail string // the expected detail of the 400 of a refused request
	}{
		{name: "a path parameter", key: mw.Param("id"), path: "/r/42", want: "order:42"},
		{name: "path parameter with escapes", key: mw.Param("id"), path: "/r/a:b%25", want: core.Key("order", "a:b%")},
		{name: "path parameter with control character", key: mw.Param("id"), path: "/r/a%0Ab", detail: `path parameter "id" contains a control character`},
		{name: "path parameter without UTF-8", key: mw.Param("id"), path: "/r/%ff", detail: `path parameter "id" is not valid UTF-8`},

		{name: "a query parameter", key: mw.Query("order"), path: "/r/1?x=1&order=4%202", want: "order:4 2"},
		{name: "a query parameter that is missing", key: mw.Query("order"), path: "/r/1?Order=1", detail: `query parameter "order" is missing`},
		{name: "a query parameter that is empty", key: mw.Query("order"), path: "/r/1?order", detail: "is empty"},
		{name: "a query parameter that is repeated", key: mw.Query("order"), path: "/r/1?order=1&order=2", detail: "is there more than once"},
		{name: "query parameter and value repeated", key: mw.Query("order"), path: "/r/1?order=1&order=1", detail: "is there more than once"},
		{name: "a query that is malformed", key: mw.Query("order"), path: "/r/1?order=1&order=%zz", detail: "Query is malformed"},

		{name: "a header", key: mw.Header("x-order"), path: "/r/1", header: []string{"X-Order", " 42 "}, want: "order:42"},
		{name: "a header that is missing", key: mw.Header("X-Order"), path: "/r/1", detail: `header "X-Order" is missing`},
		{name: "a header that is repeated", key: mw.Header("X-Order"), path: "/r/1", header: []string{"X-Order", "1", "X-Order", "2"}, detail: "is there more than once"},

		{name: "a form field", key: mw.Form("order"), path: "/r/1?order=9", body: "order=4%3A2&x=1", header: []string{"Content-Type", formType}, want: core.Key("order", "4:2")},
		{name: "a form field that is missing", key: mw.Form("order"), path: "/r/1?order=9", body: "x=1", header: []string{"Content-Type", formType}, detail: `form field "order" is missing`},
		{name: "a form field that is repeated", key: mw.Form("order"), path: "/r/1", body: "order=1&order=2", header: []string{"Content-Type", formType}, detail: "is there more than once"},
		{name: "a form that is malformed", key: mw.Form("order"), path: "/r/1", body: "order=1&order=%zz", header: []string{"Content-Type", formType}, detail: "Form is malformed"},
		{name: "a form sent as something else", key: mw.Form("order"), path: "/r/1", body: "order=1", header: []string{"Content-Type", "text/plain"}, detail: "is missing"},
		{name: "a multipart form without boundary", key: mw.Form("order"), path: "/r/1", body: "order=1", header: []string{"Content-Type", "multipart/form-data"}, detail: "Form is malformed"},

		{name: "a key that is too long", key: mw.Query("order"), path: "/r/1?order=" + strings.Repeat("k", 512), detail: "Key is too long"},

		{name: "a function that finds nothing", key: plain(""), path: "/r/1", detail: "Key is empty."},
		{name: "control character of a function", key: plain("a\nb"), path: "/r/1", detail: "Key contains a control character."},
		{name: "parts of a function", key: twoParts, path: "/r/1?a=x&b=y", want: core.Key("order", "x", "y")},

		{name: "a join", key: mw.Join(mw.Query("a"), mw.Query("b")), path: "/r/1?a=x&b=y", want: core.Key("order", "x", "y")},
		{name: "a join with colons in front", key: mw.Join(mw.Query("a"), mw.Query("b")), path: "/r/1?a=a:b&b=c", want: core.Key("order", "a:b", "c")},
		{name: "a join in a join", key: mw.Join(mw.Join(mw.Param("id"), mw.Query("a")), mw.Query("b")), path: "/r/1?a=2&b=3", want: core.Key("order", "1", "2", "3")},
		{name: "a join with a missing part", key: mw.Join(mw.Query("a"), mw.Query("b")), path: "/r/1?a=x", detail: `query parameter "b" is missing`},
		{name: "a join with an empty part", key: mw.Join(mw.Query("a"), plain("")), path: "/r/1?a=x", detail: "Key is empty."},
		{name: "a join of all sources", path: "/r/1?q=2", body: `{"id":4}`, header: []string{"H", "3", "Content-Type", "application/json"},
			key:  mw.Join(mw.Param("id"), mw.Query("q"), mw.Header("H"), mw.JSON("id")),
			want: core.Key("order", "1", "2", "3", "4")},
	} {
		t.Run(c.name+verdict(c.detail), func(t *testing.T) {
			t.Parallel()
			s := mw.newSite(t)
			s.POST("/r/:id", mw.Lock(s.locker, "order", c.key), ok)
			r := s.send("POST", c.path, c.body, c.header...)
			if c.detail == "" {
				if r.status != http.StatusOK || r.body != c.want {
					t.Errorf("got %d %q, want the key %q", r.status, r.body, c.want)
				}
				return
			}
			p := r.problem(t, http.StatusBadRequest)
			if detail, _ := p["detail"].(string); !strings.Contains(strings.ToLower(detail), strings.ToLower(c.detail)) || p["type"] != base+"key-invalid" {
				t.Errorf("got %v, want a detail with %q", p, c.detail)
			}
			if s.store.attempts.Load() != 0 {
				t.Error("the store was asked")
			}
		})
	}

	t.Run("route without the path parameter", func(t *testing.T) {
		t.Parallel()
		s, pushed := mw.newSite(t), errorsOf{}
		s.GET("/orders/:order", pushed.collect, mw.Lock(s.locker, "order", mw.Param("id")), mustNotRun(t))
		s.send("GET", "/orders/5", "").problem(t, http.StatusInternalServerError)
		if err := pushed.only(t); errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), `"/orders/:order" has no path parameter "id"`) {
			t.Errorf("c.Errors has %v", err)
		}
	})

	t.Run("Host header", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.GET("/", mw.Lock(s.locker, "shop", mw.Header("host")), func(c *gin.Context) {
			lease, _ := core.LeaseFromContext(c.Request.Context())
			if want := core.Key("shop", c.Request.Host); lease.Key() != want {
				t.Errorf("locked %q, want %q", lease.Key(), want)
			}
		})
		if r := s.send("GET", "/", ""); r.status != http.StatusOK {
			t.Errorf("got %d", r.status)
		}
	})
}

func TestForm(t *testing.T) { onEach(t, testForm) }

func testForm(t *testing.T, mw framework) {
	t.Parallel()

	t.Run("multipart field", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/", mw.Lock(s.locker, "order", mw.Form("order")), func(c *gin.Context) {
			file, err := c.FormFile("scan")
			if err != nil || file.Size != 4 || c.PostForm("order") != "42" {
				t.Errorf("file %v, %v, order %q", file, err, c.PostForm("order"))
			}
			ok(c)
		})
		contentType, form := multipartForm(t, "order", "42")
		if r := s.send("POST", "/", form, "Content-Type", contentType); r.body != "order:42" {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})

	t.Run("repeated multipart field", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/", mw.Lock(s.locker, "order", mw.Form("order")), mustNotRun(t))
		contentType, form := multipartForm(t, "order", "42", "order", "43")
		s.send("POST", "/", form, "Content-Type", contentType).problem(t, http.StatusBadRequest)
	})

	t.Run("form parsed outside", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		outer := func(c *gin.Context) { c.PostForm("anything") }
		s.POST("/", outer, mw.Lock(s.locker, "order", mw.Form("order")), func(c *gin.Context) {
			c.String(http.StatusOK, c.PostForm("order"))
		})
		if r := s.send("POST", "/", "order=42", "Content-Type", formType); r.body != "42" {
			t.Errorf("urlencoded: got %d %q", r.status, r.body)
		}
		contentType, form := multipartForm(t, "order", "42")
		if r := s.send("POST", "/", form, "Content-Type", contentType); r.body != "42" {
			t.Errorf("multipart: got %d %q", r.status, r.body)
		}
	})
}

// multipartForm returns a form with a file "scan" of 4 bytes, and its content type.
func multipartForm(t *testing.T, fields ...string) (contentType, body string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := 0; i < len(fields); i += 2 {
		if err := w.WriteField(fields[i], fields[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	file, err := w.CreateFormFile("scan", "scan.png")
	if err == nil {
		_, err = file.Write([]byte("PNG!"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), b.String()
}

// verdict completes the name of a case.
func verdict(detail string) string {
	if detail == "" {
		return " is locked"
	}
	return " is 400"
}
