package httpmw_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
)

// hiding is the writer of an outer middleware. It has no Unwrap.
type hiding struct{ gin.ResponseWriter }

// packing is the compressing writer of a net/http middleware outside gin.
type packing struct {
	http.ResponseWriter
	zip *gzip.Writer
}

func (p packing) Write(data []byte) (int, error) { return p.zip.Write(data) }

func TestReplay_Length(t *testing.T) { onEachKey(t, testReplay_Length) }

func testReplay_Length(t *testing.T, mw framework) {
	t.Parallel()
	for _, length := range []int{0, 100, 2049, 100_000} {
		body := strings.Repeat("x", length)
		for name, write := range map[string]gin.HandlerFunc{
			"at once": func(c *gin.Context) { c.String(http.StatusOK, "%s", body) },
			"in pieces": func(c *gin.Context) {
				c.Status(http.StatusOK)
				fmt.Fprint(c.Writer, body[:length/2])
				fmt.Fprint(c.Writer, body[length/2:])
			},
			"flushed": func(c *gin.Context) { c.Status(http.StatusOK); fmt.Fprint(c.Writer, body); c.Writer.Flush() },
		} {
			s := mw.newSite(t)
			s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), write)
			s.pay("k", "/", "")
			said := fmt.Sprint(length)
			if mw.pkg != onGin.pkg && length > 2048 {
				said = "" // stdmw's outer writer is gin's, for which stdmw sets no length
			}
			if r := s.pay("k", "/", ""); !r.isReplay() || r.body != body || r.header.Get("Content-Length") != said {
				t.Errorf("%s, %d bytes: replayed with %d bytes and %v", name, length, len(r.body), r.header)
			}
		}
	}
	t.Run("outer writer may change the length", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		var lengths []string
		s.POST("/", func(c *gin.Context) {
			c.Writer = hiding{c.Writer}
			c.Next()
			lengths = append(lengths, c.Writer.Header().Get("Content-Length"))
		}, mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) { c.String(http.StatusOK, strings.Repeat("x", 5000)) })
		for range 2 {
			s.pay("k", "/", "")
		}
		if len(lengths) != 2 || lengths[0] != "" || lengths[1] != "" {
			t.Errorf("got the lengths %q, want none", lengths)
		}
	})
	t.Run("compression outside of gin", func(t *testing.T) {
		t.Parallel()
		s, text := mw.newSite(t), strings.Repeat("receipt ", 1000)
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) { c.String(http.StatusOK, text) })
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			zip := gzip.NewWriter(w)
			defer func() { _ = zip.Close() }()
			w.Header().Set("Content-Encoding", "gzip")
			s.ServeHTTP(packing{w, zip}, r)
		}))
		t.Cleanup(server.Close)
		s.url = server.URL
		for _, replay := range []bool{false, true} {
			// The client unzips it.
			if r := s.pay("k", "/", ""); r.isReplay() != replay || r.body != text {
				t.Errorf("a replay is %v, with %d bytes and %v", r.isReplay(), len(r.body), r.header)
			}
		}
	})
	t.Run("over HTTP2", func(t *testing.T) {
		mw.ofGin(t)
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
			if c.Request.ProtoMajor != 2 {
				t.Errorf("the request is %s", c.Request.Proto)
			}
			c.String(http.StatusOK, strings.Repeat("x", 100_000))
		})
		server := httptest.NewUnstartedServer(s.Engine)
		server.EnableHTTP2 = true
		server.StartTLS()
		t.Cleanup(server.Close)
		s.url, s.client = server.URL, &http.Client{Transport: renamed{server.Client().Transport, mw.header}}
		s.pay("k", "/", "")
		if r := s.pay("k", "/", ""); !r.isReplay() || len(r.body) != 100_000 || r.header.Get("Content-Length") != "100000" {
			t.Errorf("replayed with %d bytes and %v", len(r.body), r.header)
		}
	})
	t.Run("no length without a body", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) { c.Status(http.StatusNoContent); c.Writer.WriteHeaderNow() })
		s.pay("k", "/", "")
		if r := s.pay("k", "/", ""); !r.isReplay() || r.status != http.StatusNoContent || r.header.Get("Content-Length") != "" {
			t.Errorf("replayed with %d %v", r.status, r.header)
		}
	})
}

func TestMessages_Short(t *testing.T) { onEach(t, testMessages_Short) }

func testMessages_Short(t *testing.T, mw framework) {
	t.Parallel()
	s := mw.newSite(t)
	pass := mw.Idempotent(s.runs(), mw.AnyCaller())
	s.POST("/key", pass, mustNotRun(t))
	s.POST("/param", mw.Lock(s.locker, "order", mw.Param("idd")), mustNotRun(t))
	s.POST("/scope", mw.Idempotent(s.runs(), mw.Param("idd")), mustNotRun(t))
	s.POST("/tenant", mw.Lock(s.locker, "order", mw.Header("X-Tenant")), mustNotRun(t))
	s.POST("/own", mw.Lock(s.locker, "order", func(*gin.Context) (string, error) { return "", errors.New("secret") }), mustNotRun(t))
	for path, want := range map[string]string{
		"/key":    "Idempotency-Key header is missing.",
		"/param":  "Lock misconfigured; see the server log.",
		"/scope":  "Idempotency misconfigured; see the server log.",
		"/tenant": `Header "X-Tenant" is missing.`,
		"/own":    "Lock failed; see the server log.",
	} {
		header := []string{"Idempotency-Key", "k"}
		if path == "/key" {
			header = nil
		}
		r := s.send("POST", path, "", header...)
		if got := r.problem(t, r.status)["detail"]; got != want {
			t.Errorf("%s: %d %q, want %q", path, r.status, got, want)
		}
	}
}
