package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/httpmw"
)

// allocated returns the number of bytes that f allocates. No other test must run at the
// same time.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestRequest_Cost checks that reading a key allocates at most a hundred times the
// length of the body and the query. It runs on gin alone, because stdmw takes keys from
// the same sources.
func TestRequest_Cost(t *testing.T) { testRequest_Cost(t, onGin, tally.AllTrials(16)<<16) }

func testRequest_Cost(t *testing.T, mw framework, length int) {
	const (
		factor    = 100 // a field of three bytes takes a string, a slice, and a map entry
		multipart = "multipart/form-data; boundary=b"
	)
	fill := func(head, text, tail string) string {
		return head + strings.Repeat(text, (length-len(head)-len(tail))/len(text)) + tail
	}
	distinct := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < length-20; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	part := func(name, more, text string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"" + more + "\r\n\r\n" + text + "\r\n"
	}
	// The directory for temporary files is missing, so each form has to be parsed in
	// memory.
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	for _, c := range []struct {
		name        string
		key         httpmw.KeyFunc
		contentType string
		query, body string
		want        string // the key, or "" if the request is refused
	}{
		{"JSON of many fields", mw.JSON("id"), "", "", fill(`{`, `"a":1,`, `"id":1}`), "1"},
		{"JSON of one long string", mw.JSON("id"), "", "", fill(`{"x":"`, "x", `","id":1}`), "1"},
		{"JSON of one long key", mw.JSON("id"), "", "", fill(`{"id":"`, "x", `"}`), ""},
		{"JSON of one long number", mw.JSON("id"), "", "", fill(`{"id":`, "1", `}`), ""},
		{"JSON of escapes", mw.JSON("id"), "", "", fill(`{"id":"`, `\u0041`, `"}`), ""},
		{"JSON that is deep", mw.JSON("id"), "", "", `{"x":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `,"id":1}`, "1"},
		{"JSON that is too deep", mw.JSON("id"), "", "", fill(`{"x":`, "[", ""), ""},
		{"JSON deep above the key", mw.JSON("a.a.a.a.a.a.a.a"), "", "", fill("", `{"a":`, ""), ""},
		{"a form of many fields", mw.Form("id"), formType, "", distinct("x%d=&"), ""},
		{"a form of a repeated field", mw.Form("id"), formType, "", fill("", "id=1&", "id=1"), ""},
		{"a form of one long field", mw.Form("id"), formType, "", fill("id=", "x", ""), ""},
		{"a form of few fields", mw.Form("id"), formType, "", fill("x=", "x", "&id=1"), "1"},
		{"a form of many parts", mw.Form("id"), multipart, "", fill("", part("x", "", ""), part("id", "", "1")+"--b--"), ""},
		{"a part of many headers", mw.Form("id"), multipart, "", part("id", strings.Repeat("\r\nA: b", length/7), "1") + "--b--", ""},
		{"a form with a large file", mw.Form("id"), multipart, "", part("x", `; filename="x"`, strings.Repeat("x", length-500)) + part("id", "", "1") + "--b--", "1"},
		{"a query of many parameters", mw.Query("id"), "", distinct("x%d=&"), "", ""},
		{"a query of one long parameter", mw.Query("id"), "", fill("id=", "x", ""), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := gin.CreateTestContextOnly(httptest.NewRecorder(), gin.New())
			g.Request = httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body))
			withGin(g)
			g.Request.URL.RawQuery = c.query
			if c.contentType != "" {
				g.Request.Header.Set("Content-Type", c.contentType)
			}
			var got string
			var err error
			n := allocated(func() { got, err = c.key(g) })
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("the key is %.20q, error %v, want %q", got, err, c.want)
			}
			if err != nil && !errors.Is(err, core.ErrInvalid) || len(fmt.Sprint(err)) > 200 {
				t.Errorf("the error is %.500v", err)
			}
			if most := uint64(factor * (len(c.body) + len(c.query))); n > most {
				t.Errorf("%d bytes were allocated for %d", n, len(c.body)+len(c.query))
			}
		})
	}
}

// TestManyKeys checks that released keys leave at most 20 bytes each, and no
// goroutines.
func TestManyKeys(t *testing.T) {
	keys := tally.AllTrials(20_000)
	oneByOne(t, func(t *testing.T, mw framework) { testManyKeys(t, mw, keys) })
}

func testManyKeys(t *testing.T, mw framework, keys int) {
	s := mw.newSite(t)
	s.POST("/:id", mw.Lock(s.locker, "order", mw.Param("id")), ok)
	ask := func(n, from int) {
		for i := range n {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, fmt.Sprint("/", from+i), nil))
			if w.Code != http.StatusOK {
				t.Fatalf("got %d", w.Code)
			}
		}
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	ask(100, keys)
	goroutines, before := runtime.NumGoroutine(), heap()
	ask(keys, 0)
	if after := heap(); after > before+uint64(keys)*20+64<<10 {
		t.Errorf("%d bytes are left of %d keys", after-before, keys)
	}
	if n := runtime.NumGoroutine(); n > goroutines+10 {
		t.Errorf("%d goroutines, were %d", n, goroutines)
	}
}

func TestBounds(t *testing.T) { onEachKey(t, testBounds) }

func testBounds(t *testing.T, mw framework) {
	t.Parallel()
	t.Run("full queue is busy at once", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t, core.WithMaxWaiting(1, 0))
		s.POST("/:id", mw.Lock(s.locker, "order", mw.Param("id"), mw.Acquire(core.Wait(2*soon))), ok)
		release := s.hold("order:5")
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		answers := make(chan int, 10)
		for range cap(answers) {
			go func() {
				r, _ := s.try(ctx, "POST", "/5", "")
				answers <- r.status
			}()
		}
		// The other two callers wait: the first polls the store, and the second is
		// queued.
		for range cap(answers) - 2 {
			if status := within(t, "the others are refused", answers); status != http.StatusConflict {
				t.Errorf("got %d", status)
			}
		}
		release()
		for range 2 {
			if status := within(t, "a waiter is served", answers); status != http.StatusOK {
				t.Errorf("got %d", status)
			}
		}
	})
	t.Run("headers too long to store", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/:length", mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
			n := 60 << 10
			if c.Param("length") == "over" {
				n = 65 << 10
			}
			c.Header("Location", "/"+strings.Repeat("x", n))
			c.String(http.StatusCreated, "done")
		})
		for _, length := range []string{"kept", "over"} {
			if r := s.pay(length, "/"+length, ""); r.status != http.StatusCreated || len(r.header.Get("Location")) < 60<<10 {
				t.Errorf("%s: got %d with %d bytes", length, r.status, len(r.header.Get("Location")))
			}
		}
		if again := s.pay("kept", "/kept", ""); !again.isReplay() || len(again.header.Get("Location")) < 60<<10 {
			t.Errorf("got %d", again.status)
		}
		s.gone("over", "/over")
	})
}

// TestFingerprint_Cost checks that a request with a fingerprint allocates at most a
// hundred times the length of its body.
func TestFingerprint_Cost(t *testing.T) {
	length := tally.AllTrials(16) << 16
	const (
		factor    = 100
		multipart = "multipart/form-data; boundary=b"
	)
	s := onGin.newSite(t)
	s.POST("/", onGin.Idempotent(s.runs(), onGin.AnyCaller()), func(c *gin.Context) { c.Status(http.StatusOK) })
	fill := func(text, tail string) string {
		return strings.Repeat(text, (length-len(tail))/len(text)) + tail
	}
	fields := strings.Builder{}
	for i := 0; fields.Len() < length-20; i++ {
		fmt.Fprintf(&fields, "x%d=&", i)
	}
	part := "--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n\r\n"
	for _, c := range []struct{ name, contentType, body string }{
		{"many parts", multipart, fill(part, "--b--")},
		{"parts without headers", multipart, fill("--b\r\n\r\n\r\n", "--b--")},
		{"many headers", multipart, "--b\r\n" + fill("A: b\r\n", "\r\n\r\n--b--\r\n")},
		{"one header", multipart, "--b\r\nA: " + fill("x", "\r\n\r\n\r\n--b--\r\n")[9:]},
		{"no parts", multipart, fill("--b", "--b--")},
		{"blank lines", multipart, fill("\r\n", "--b--")},
		{"one part", multipart, "--b\r\n\r\n" + fill("x", "\r\n--b--")[8:]},
		{"many fields", formType, fields.String()},
		{"one field", formType, fill("a&", "")},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body[:min(len(c.body), length)]))
			r.Header.Set("Content-Type", c.contentType)
			r.Header.Set("Idempotency-Key", strings.ReplaceAll(c.name, " ", "-"))
			n := allocated(func() { s.ServeHTTP(w, r) })
			if w.Code != http.StatusOK || n > factor*uint64(length) {
				t.Errorf("got %d and %d bytes allocated, want at most %d", w.Code, n, factor*length)
			}
			t.Logf("got %d and %d bytes allocated", w.Code, n)
		})
	}
}
