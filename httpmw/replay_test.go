package httpmw_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
)

func TestReplayedHeaders(t *testing.T) { onEachKey(t, testReplayedHeaders) }

func testReplayedHeaders(t *testing.T, mw framework) {
	t.Parallel()
	// headers has headers that a handler can set, and whether they are replayed.
	headers := map[string]bool{
		"Content-Disposition": true, "Content-Encoding": true, "Content-Language": true, "Content-Location": true,
		"Content-Type": true, "Etag": true, "Last-Modified": true, "Link": true, "Location": true,
		"X-Receipt":  true, // KeepHeaders adds it
		"Set-Cookie": false, "Www-Authenticate": false, "Proxy-Authenticate": false, "Authorization": false,
		"Age": false, "Server": false, "Vary": false, "X-Request-Id": false, "Traceparent": false, "X-Other": false,
		"Ratelimit-Remaining": false, "Retry-After": false, "Access-Control-Allow-Origin": false, "Keep-Alive": false,
	}

	t.Run("headers of the response", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller(), mw.KeepHeaders("x-receipt")), func(c *gin.Context) {
			for name := range headers {
				c.Header(name, "first")
			}
			c.Status(http.StatusOK)
		})
		first, again := s.pay("k", "/", ""), s.pay("k", "/", "")
		for name, kept := range headers {
			if first.header.Get(name) != "first" {
				t.Errorf("%s is %q in the first answer", name, first.header.Get(name))
			}
			if got := again.header.Get(name); (got == "first") != kept || got != "" && got != "first" {
				t.Errorf("%s is replayed as %q; kept: %v", name, got, kept)
			}
		}
		if again.header.Get("Date") == "" {
			t.Error("no Date")
		}
	})

	t.Run("headers of an outer middleware", func(t *testing.T) {
		t.Parallel()
		s, requests := mw.newSite(t), atomic.Int32{}
		outer := func(c *gin.Context) {
			n := requests.Add(1)
			c.Header("X-Request-Id", fmt.Sprint(n))
			c.Header("Content-Language", fmt.Sprint("outer-", n))
			c.Header("Link", fmt.Sprint("outer-", n))
			c.Header("Etag", "outer")
			c.SetCookie("session", fmt.Sprint(n), 0, "", "", false, false)
		}
		s.POST("/", outer, mw.Idempotent(s.runs(), mw.AnyCaller(), mw.KeepHeaders("X-Request-Id")), func(c *gin.Context) {
			c.Header("Content-Language", "inner")
			c.Header("Etag", "")
			c.String(http.StatusOK, "x")
		})
		for n := 1; n <= 2; n++ {
			r := s.pay("k", "/", "")
			for name, want := range map[string]string{
				"X-Request-Id": fmt.Sprint(n), "Link": fmt.Sprint("outer-", n), "Content-Language": "inner", "Etag": "",
			} {
				if got := r.header.Get(name); got != want {
					t.Errorf("answer %d has %s %q, want %q", n, name, got, want)
				}
			}
			if cookies := r.header.Values("Set-Cookie"); len(cookies) != 1 || !strings.HasPrefix(cookies[0], fmt.Sprintf("session=%d;", n)) {
				t.Errorf("answer %d has cookies %q", n, cookies)
			}
		}
	})
}

// compress is a gzip middleware: it announces the compression, and compresses all later
// writes.
func compress(c *gin.Context) {
	zip := gzip.NewWriter(c.Writer)
	before := c.Writer
	c.Header("Content-Encoding", "gzip")
	c.Writer.Header().Add("Vary", "Accept-Encoding")
	c.Writer = &zipping{before, zip}
	c.Next()
	_ = zip.Close()
	c.Header("Content-Length", fmt.Sprint(before.Size()))
	c.Writer = before
}

type zipping struct {
	gin.ResponseWriter
	zip *gzip.Writer
}

func (z *zipping) Write(data []byte) (int, error)       { return z.zip.Write(data) }
func (z *zipping) WriteString(data string) (int, error) { return z.zip.Write([]byte(data)) }

// allow is a CORS middleware.
func allow(c *gin.Context) {
	c.Header("Access-Control-Allow-Origin", c.GetHeader("Origin"))
	c.Header("Access-Control-Expose-Headers", "Idempotent-Replayed")
	c.Writer.Header().Add("Vary", "Origin")
}

func TestMiddlewareAround(t *testing.T) { onEachKey(t, testMiddlewareAround) }

func testMiddlewareAround(t *testing.T, mw framework) {
	t.Parallel()
	text := strings.Repeat("receipt ", 1000)
	answer := func(c *gin.Context) { c.String(http.StatusOK, "%s", text) }
	for _, c := range []struct {
		name  string
		build func(idempotent gin.HandlerFunc) []gin.HandlerFunc
	}{
		{"gzip and CORS outside", func(i gin.HandlerFunc) []gin.HandlerFunc { return []gin.HandlerFunc{allow, compress, i, answer} }},
		{"gzip inside and CORS outside", func(i gin.HandlerFunc) []gin.HandlerFunc { return []gin.HandlerFunc{allow, i, compress, answer} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := mw.newSite(t)
			s.POST("/", c.build(mw.Idempotent(s.runs(), mw.AnyCaller()))...)
			for i, origin := range []string{"https://one.example", "https://two.example"} {
				// If the request sets Accept-Encoding itself, the transport does not
				// decompress.
				r := s.pay("k", "/", "", "Origin", origin, "Accept-Encoding", "gzip")
				if r.isReplay() != (i > 0) || r.header.Get("Content-Encoding") != "gzip" || r.header.Get("Access-Control-Allow-Origin") != origin {
					t.Errorf("answer %d has %v", i+1, r.header)
				}
				if got := unzip(t, r.body); got != text {
					t.Errorf("answer %d is %d bytes", i+1, len(got))
				}
				if n := r.header.Get("Content-Length"); n != "" && n != fmt.Sprint(len(r.body)) {
					t.Errorf("answer %d says it has %s bytes, and has %d", i+1, n, len(r.body))
				}
			}
		})
	}

	t.Run("outer gzip of a refusal", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/", compress, mw.Idempotent(s.runs(), mw.AnyCaller()), mustNotRun(t))
		r := s.pay("", "/", "", "Accept-Encoding", "gzip")
		if got := unzip(t, r.body); r.status != http.StatusBadRequest || !strings.Contains(got, "idempotency-key-invalid") {
			t.Errorf("got %d %q", r.status, got)
		}
	})

	t.Run("error with an outer response", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		answers := func(c *gin.Context) {
			c.Next()
			if len(c.Errors) > 0 && !c.Writer.Written() {
				c.JSON(http.StatusInternalServerError, gin.H{"error": "failed"})
			}
		}
		s.POST("/", answers, mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
			if runs.Add(1) == 1 {
				_ = c.Error(io.ErrClosedPipe)
			}
		})
		if r := s.pay("k", "/", ""); r.status != http.StatusInternalServerError || r.body != `{"error":"failed"}` {
			t.Errorf("got %d %q", r.status, r.body)
		}
		if r := s.pay("k", "/", ""); r.status != http.StatusOK || r.isReplay() || runs.Load() != 2 {
			t.Errorf("got %d %q after %d runs", r.status, r.body, runs.Load())
		}
	})

	for name, handler := range map[string]gin.HandlerFunc{
		"an abort with an error":   func(c *gin.Context) { _ = c.AbortWithError(http.StatusNotFound, errors.New("no such order")) },
		"a status beside an error": func(c *gin.Context) { c.Status(http.StatusNotFound); _ = c.Error(errors.New("no such order")) },
	} {
		t.Run(name+" body written outside", func(t *testing.T) {
			t.Parallel()
			s, runs := mw.newSite(t), atomic.Int32{}
			render := func(c *gin.Context) {
				c.Next()
				if len(c.Errors) > 0 {
					c.JSON(-1, gin.H{"error": c.Errors.Last().Error()})
				}
			}
			s.POST("/", render, mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
				runs.Add(1)
				handler(c)
			})
			for n := range 3 {
				r := s.pay("k", "/", "")
				if r.status != http.StatusNotFound || r.body != `{"error":"no such order"}` || r.isReplay() || runs.Load() != int32(n+1) {
					t.Errorf("request %d: got %d %q after %d runs", n+1, r.status, r.body, runs.Load())
				}
			}
		})
	}

	t.Run("success beside an error", func(t *testing.T) {
		t.Parallel()
		for name, handler := range map[string]gin.HandlerFunc{
			"a status":         func(c *gin.Context) { c.Status(http.StatusCreated); _ = c.Error(io.ErrClosedPipe) },
			"a status of 200":  func(c *gin.Context) { c.Status(http.StatusOK); _ = c.Error(io.ErrClosedPipe) },
			"a status at once": func(c *gin.Context) { _ = c.AbortWithError(http.StatusAccepted, io.ErrClosedPipe) },
			"a body":           func(c *gin.Context) { c.String(http.StatusOK, "paid"); _ = c.Error(io.ErrClosedPipe) },
		} {
			s, runs := mw.newSite(t), atomic.Int32{}
			s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
				runs.Add(1)
				handler(c)
			})
			first, again := s.pay("k", "/", ""), s.pay("k", "/", "")
			if !again.isReplay() || again.status != first.status || again.body != first.body || runs.Load() != 1 {
				t.Errorf("%s: got %d %q, then %d %q after %d runs", name, first.status, first.body, again.status, again.body, runs.Load())
			}
		}
	})

	t.Run("two on one route", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		o := s.runs()
		tenant := mw.Idempotent(o, mw.Header("X-Tenant"))
		s.POST("/", tenant, mw.Idempotent(o, mw.AnyCaller()), counted(&runs))
		first, again := s.pay("k", "/", "", "X-Tenant", "a"), s.pay("k", "/", "", "X-Tenant", "a")
		other := s.pay("k", "/", "", "X-Tenant", "b")
		if bodies := []string{first.body, again.body, other.body}; !slices.Equal(bodies, []string{"run 1", "run 1", "run 1"}) || runs.Load() != 1 {
			t.Errorf("got %q after %d runs", bodies, runs.Load())
		}
	})
}

func unzip(t *testing.T, data string) string {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader([]byte(data)))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}
