package httpmw_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw"
)

func TestKeepIf(t *testing.T) { onEachKey(t, testKeepIf) }

func testKeepIf(t *testing.T, mw framework) {
	t.Parallel()
	t.Run("a 200 that says it failed", func(t *testing.T) {
		t.Parallel()
		s, runs, asked := mw.newSite(t), atomic.Int32{}, atomic.Int32{}
		keep := mw.KeepIf(func(k httpmw.Kept) bool {
			asked.Add(1)
			if n := s.store.releases.Load(); n != asked.Load()-1 {
				t.Errorf("got %d saves before KeepIf, want %d", n, asked.Load()-1)
			}
			if k.Status != http.StatusOK || !strings.HasPrefix(k.Header.Get("Content-Type"), "text/plain") || k.Unreplayable || !k.ByDefault {
				t.Errorf("got %+v, want the response", k)
			}
			k.Header.Set("Content-Type", "changed")
			return k.ByDefault && !bytes.Contains(k.Body, []byte(`:503`))
		})
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller(), keep), func(c *gin.Context) {
			n := runs.Add(1)
			c.String(http.StatusOK, `{"code":`)
			c.String(http.StatusOK, `%d}`, 500+n)
		})
		for i, want := range []string{`{"code":501}`, `{"code":501}`} {
			if r := s.pay("k", "/", ""); r.body != want || r.isReplay() != (i == 1) || r.header.Get("Content-Type") == "changed" {
				t.Errorf("request %d: got %q %v, want %q", i+1, r.body, r.header, want)
			}
		}
		runs.Store(2)
		for i, want := range []string{`{"code":503}`, `{"code":504}`, `{"code":504}`} {
			if r := s.pay("l", "/", ""); r.body != want || r.isReplay() != (i == 2) {
				t.Errorf("request %d: got %q %v, want %q", i+1, r.body, r.header, want)
			}
		}
		if asked.Load() != 3 {
			t.Errorf("got %d calls, want one for each of 3 runs", asked.Load())
		}
	})

	for name, write := range map[string]func(c *gin.Context, text string){
		"over the limit in one write": func(c *gin.Context, text string) { c.String(http.StatusAccepted, text) },
		"over the limit in pieces": func(c *gin.Context, text string) {
			c.Status(http.StatusAccepted)
			for _, b := range []byte(text) {
				_, _ = c.Writer.Write([]byte{b})
			}
		},
		"a stream": func(c *gin.Context, text string) {
			c.Header("Content-Type", "text/event-stream")
			c.String(http.StatusAccepted, text)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, runs := mw.newSite(t), atomic.Int32{}
			keep := mw.KeepIf(func(k httpmw.Kept) bool {
				if !k.Unreplayable || k.Status != http.StatusAccepted || len(k.Body) != 8 || k.Header.Get("X-Run") == "" {
					t.Errorf("got %+v, want the first 8 bytes", k)
				}
				return string(k.Body) == "success:"
			})
			s.POST("/", mw.Idempotent(s.runs(once.AtMostOnce()), mw.AnyCaller(), mw.AnswerLimit(8), keep), func(c *gin.Context) {
				n := runs.Add(1)
				c.Header("X-Run", fmt.Sprint(n))
				write(c, []string{"failure: a", "failure: b", "success: c"}[n-1])
			})
			for _, want := range []string{"failure: a", "failure: b", "success: c"} {
				if r := s.pay("k", "/", ""); r.status != http.StatusAccepted || r.body != want {
					t.Errorf("got %d %q, want %q", r.status, r.body, want)
				}
			}
			s.gone("k", "/")
		})
	}

	// The limit of headers, the limit of a Once, and a body that is too short.
	for name, write := range map[string]func(c *gin.Context){
		"headers too long": func(c *gin.Context) {
			c.Header("Location", "/"+strings.Repeat("x", 65<<10))
			c.String(http.StatusCreated, "done")
		},
		"32 MiB in all": func(c *gin.Context) { c.Data(http.StatusCreated, "text/plain", make([]byte, 32<<20)) },
		"length not reached": func(c *gin.Context) {
			c.Header("Content-Length", "100")
			c.String(http.StatusCreated, "done")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, runs := mw.newSite(t), atomic.Int32{}
			keep := mw.KeepIf(func(k httpmw.Kept) bool {
				if !k.Unreplayable || k.Status != http.StatusCreated {
					t.Errorf("got %d and unreplayable %v, want 201 and true", k.Status, k.Unreplayable)
				}
				return !k.Unreplayable
			})
			s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller(), mw.AnswerLimit(64<<20), keep), func(c *gin.Context) {
				runs.Add(1)
				write(c)
			})
			for want := int32(1); want <= 2; want++ {
				// The client gets an error if the body is too short.
				_, _ = s.try(t.Context(), "POST", "/", "", "Idempotency-Key", "k")
				if got := runs.Load(); got != want {
					t.Errorf("got %d runs, want %d", got, want)
				}
			}
		})
	}

	t.Run("without a body", func(t *testing.T) {
		t.Parallel()
		s, seen := mw.newSite(t), make(chan httpmw.Kept, 1)
		keep := mw.KeepIf(func(k httpmw.Kept) bool { seen <- k; return true })
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller(), keep), func(c *gin.Context) {
			c.Header("Location", "/5")
			c.Status(http.StatusServiceUnavailable)
		})
		s.pay("k", "/", "")
		if k := within(t, "KeepIf is called", seen); k.Status != http.StatusServiceUnavailable || k.ByDefault || k.Unreplayable || len(k.Body) > 0 || k.Header.Get("Location") != "/5" {
			t.Errorf("got %+v, want an empty 503", k)
		}
		if r := s.pay("k", "/", ""); r.status != http.StatusServiceUnavailable || !r.isReplay() {
			t.Errorf("got %d %v, want a replay", r.status, r.header)
		}
	})

	t.Run("not asked", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		keep := mw.KeepIf(func(k httpmw.Kept) bool {
			t.Errorf("got a call for %+v, want none", k)
			return true
		})
		s.POST("/final", mw.Idempotent(s.runs(), mw.AnyCaller(), keep), func(c *gin.Context) {
			once.NotFinal(c.Request.Context())
			c.String(http.StatusOK, "busy")
		})
		s.POST("/hijacked", mw.Idempotent(s.runs(), mw.AnyCaller(), keep), func(c *gin.Context) {
			conn, rw, err := c.Writer.Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(rw, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nraw")
			rw.Flush()
		})
		for range 2 {
			if r := s.pay("final", "/final", ""); r.body != "busy" || r.isReplay() {
				t.Errorf("got %q %v, want the handler's", r.body, r.header)
			}
		}
		s.pay("hijacked", "/hijacked", "")
		s.gone("hijacked", "/hijacked")
	})

	t.Run("a panic", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		keep := mw.KeepIf(func(httpmw.Kept) bool { panic("out of words") })
		quiet := gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) })
		s.POST("/", quiet, mw.Idempotent(s.runs(once.AtMostOnce()), mw.AnyCaller(), keep), counted(&runs))
		if r := s.pay("k", "/", ""); r.status != http.StatusInternalServerError {
			t.Errorf("got %d, want 500", r.status)
		}
		s.pay("k", "/", "").problem(t, http.StatusConflict)
		if runs.Load() != 1 {
			t.Errorf("got %d runs, want 1", runs.Load())
		}
	})
}
