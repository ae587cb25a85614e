package httpmw_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
)

// gone checks that the request of key is refused once its run is complete. The client
// of a hijacked connection can get its response before the run is complete.
func (s *site) gone(key, path string) {
	s.t.Helper()
	eventually(s.t, "the run is over", func() bool { return s.pay(key, path, "").status != http.StatusConflict })
	for range 2 {
		r := s.pay(key, path, "")
		p := r.problem(s.t, http.StatusGone)
		if p["type"] != base+"idempotency-unreplayable" || r.header.Get("Retry-After") != "" || r.isReplay() {
			s.t.Errorf("got %v %v", p, r.header)
		}
	}
}

func TestUnreplayable(t *testing.T) { onEachKey(t, testUnreplayable) }

func testUnreplayable(t *testing.T, mw framework) {
	t.Parallel()

	t.Run("streamed response", func(t *testing.T) {
		t.Parallel()
		for name, flush := range map[string]func(w http.ResponseWriter){
			"by the writer":               func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
			"by http.ResponseController":  func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
			"by a wrapper of the writer":  func(w http.ResponseWriter) { (&upper{w.(gin.ResponseWriter)}).Flush() },
			"as events without any flush": nil,
		} {
			s, next, runs := mw.newSite(t), make(chan struct{}), atomic.Int32{}
			s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
				runs.Add(1)
				c.Status(http.StatusAccepted)
				if flush == nil {
					c.SSEvent("tick", 1)
					return
				}
				_, _ = c.Writer.WriteString("one\n")
				flush(c.Writer)
				within(t, "the client has read it", next)
				if !c.Writer.Written() || c.Writer.Size() != 4 || c.Writer.Status() != http.StatusAccepted {
					t.Errorf("the writer says %v %d %d", c.Writer.Written(), c.Writer.Size(), c.Writer.Status())
				}
				_, _ = c.Writer.Write([]byte("two\n"))
			})
			req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Idempotency-Key", "k")
			resp, err := s.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(resp.Body)
			if flush != nil {
				if !lines.Scan() || lines.Text() != "one" || resp.StatusCode != http.StatusAccepted {
					t.Errorf("%s: got %d %q, %v", name, resp.StatusCode, lines.Text(), lines.Err())
				}
				next <- struct{}{}
			}
			for lines.Scan() {
			}
			resp.Body.Close()
			s.gone("k", "/")
			if runs.Load() != 1 {
				t.Errorf("%s: %d ran", name, runs.Load())
			}
		}
	})

	t.Run("hijacked connection", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/:how", mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
			hijack := c.Writer.Hijack
			if c.Param("how") == "controller" {
				hijack = http.NewResponseController(c.Writer).Hijack
			}
			conn, rw, err := hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(rw, "HTTP/1.1 500 Odd\r\nContent-Length: 3\r\nConnection: close\r\n\r\nraw")
			rw.Flush()
		})
		for _, path := range []string{"/writer", "/controller"} {
			if r := s.pay(path, path, ""); r.status != http.StatusInternalServerError || r.body != "raw" {
				t.Errorf("got %d %q", r.status, r.body)
			}
			s.gone(path, path)
		}
	})

	t.Run("hijack after the response began", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
			c.String(http.StatusOK, "begun")
			if _, _, err := c.Writer.Hijack(); err == nil {
				t.Error("hijacked")
			}
		})
		s.pay("k", "/", "")
		if r := s.pay("k", "/", ""); r.body != "begun" || !r.isReplay() {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})

	t.Run("response at the limit", func(t *testing.T) {
		t.Parallel()
		const most = 256 << 10
		s := mw.newSite(t)
		write := func(size int) gin.HandlerFunc {
			return func(c *gin.Context) {
				c.Header("Location", "/5")
				c.Status(http.StatusCreated)
				for left := size; left > 0; left -= min(left, 1000) {
					n, err := c.Writer.Write(bytes.Repeat([]byte("x"), min(left, 1000)))
					if n != min(left, 1000) || err != nil {
						t.Errorf("wrote %d, %v", n, err)
					}
				}
				if c.Writer.Size() != size || c.Writer.Status() != http.StatusCreated {
					t.Errorf("the writer says %d bytes, %d", c.Writer.Size(), c.Writer.Status())
				}
			}
		}
		s.POST("/kept", mw.Idempotent(s.runs(), mw.AnyCaller()), write(most))
		s.POST("/over", mw.Idempotent(s.runs(), mw.AnyCaller()), write(most+1))
		s.POST("/small", mw.Idempotent(s.runs(), mw.AnyCaller(), mw.AnswerLimit(10)), write(11))
		s.POST("/huge", mw.Idempotent(s.runs(), mw.AnyCaller()), write(2<<20))
		for path, size := range map[string]int{"/kept": most, "/over": most + 1, "/small": 11, "/huge": 2 << 20} {
			r := s.pay(path, path, "")
			if r.status != http.StatusCreated || r.body != strings.Repeat("x", size) || r.header.Get("Location") != "/5" {
				t.Errorf("%s: got %d with %d bytes %v", path, r.status, len(r.body), r.header)
			}
			if path != "/kept" {
				s.gone(path, path)
			} else if again := s.pay(path, path, ""); again.body != r.body || !again.isReplay() {
				t.Errorf("%s: got %d with %d bytes", path, again.status, len(again.body))
			}
		}
	})

	t.Run("response shorter than announced", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
			c.Header("Content-Length", "10")
			_, _ = c.Writer.WriteString("half")
		})
		if r, err := s.try(t.Context(), "POST", "/", "", "Idempotency-Key", "k"); err == nil {
			t.Errorf("got %d %q", r.status, r.body)
		}
		s.gone("k", "/")
	})

	t.Run("response past the middleware", func(t *testing.T) {
		mw.ofGin(t)
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		s.POST("/past/:to", mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
			c.Request.URL.Path = "/" + c.Param("to")
			s.HandleContext(c)
		})
		s.POST("/paid", func(c *gin.Context) { c.String(http.StatusCreated, "run %d", runs.Add(1)) })
		s.POST("/late", func(c *gin.Context) { c.String(http.StatusBadGateway, "run %d", runs.Add(1)) })
		s.POST("/none", func(c *gin.Context) { c.Status(http.StatusAccepted) })
		if r := s.pay("k", "/past/paid", ""); r.status != http.StatusCreated || r.body != "run 1" {
			t.Errorf("got %d %q", r.status, r.body)
		}
		s.gone("k", "/past/paid")
		for _, want := range []string{"run 2", "run 3"} {
			if r := s.pay("late", "/past/late", ""); r.status != http.StatusBadGateway || r.body != want {
				t.Errorf("got %d %q, want %q", r.status, r.body, want)
			}
		}
		if r := s.pay("none", "/past/none", ""); r.status != http.StatusAccepted {
			t.Errorf("got %d %q", r.status, r.body)
		}
		s.gone("none", "/past/none")
	})

	t.Run("response after 103", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), gin.WrapF(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			fmt.Fprintf(w, "run %d", runs.Add(1))
		}))
		if r := s.pay("k", "/", ""); r.status != http.StatusOK || r.body != "run 1" {
			t.Errorf("got %d %q", r.status, r.body)
		}
		s.gone("k", "/")
	})

	t.Run("stream of a status not stored", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
			c.String(http.StatusServiceUnavailable, "run %d", runs.Add(1))
			c.Writer.Flush()
		})
		for i := range 2 {
			if r := s.pay("k", "/", ""); r.body != fmt.Sprintf("run %d", i+1) {
				t.Errorf("got %d %q", r.status, r.body)
			}
		}
	})

	t.Run("trailers with the first response", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
			c.Header("Trailer", "X-Sum")
			c.String(http.StatusOK, "x")
			c.Header("X-Sum", "1")
			c.Header(http.TrailerPrefix+"X-More", "2")
		})
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "k")
		resp, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.ReadAll(resp.Body); err != nil || resp.Trailer.Get("X-Sum") != "1" || resp.Trailer.Get("X-More") != "2" {
			t.Errorf("got %v, %v", resp.Trailer, err)
		}
	})
}
