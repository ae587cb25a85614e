package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw"
)

func attempt(t *testing.T, c *gin.Context) int {
	t.Helper()
	n, ok := once.AttemptFromContext(c.Request.Context())
	if !ok {
		t.Error("the handler sees no attempt")
	}
	return n
}

func TestKeptStatuses(t *testing.T) { onEachKey(t, testKeptStatuses) }

func testKeptStatuses(t *testing.T, mw framework) {
	t.Parallel()
	notKept := map[int]bool{401: true, 403: true, 407: true, 408: true, 409: true, 423: true, 425: true, 429: true, 499: true}

	t.Run("stored statuses", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/:status", mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
			var status int
			_, _ = fmt.Sscan(c.Param("status"), &status)
			c.Header("Location", fmt.Sprint(attempt(t, c)))
			c.Status(status)
		})
		for status := 200; status < 600; status++ {
			path := fmt.Sprintf("/%d", status)
			kept := status < 500 && !notKept[status]
			for i, want := range []string{"1", map[bool]string{true: "1", false: "2"}[kept]} {
				w, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, nil)
				req.Header.Set(mw.header, path)
				s.ServeHTTP(w, req)
				r := reply{w.Code, w.Header(), w.Body.String()}
				if r.status != status || r.header.Get("Location") != want || r.isReplay() != (kept && i > 0) {
					t.Errorf("request %d: got %d of attempt %s, want %d of %s", i+1, r.status, r.header.Get("Location"), status, want)
				}
			}
		}
	})

	t.Run("KeepIf", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		keep := mw.KeepIf(func(k httpmw.Kept) bool { return k.Status == http.StatusInternalServerError })
		s.POST("/:status", mw.Idempotent(s.runs(), mw.AnyCaller(), keep), func(c *gin.Context) {
			var status int
			_, _ = fmt.Sscan(c.Param("status"), &status)
			c.String(status, "run %d", runs.Add(1))
		})
		for i, path := range []string{"/500", "/500", "/200", "/200"} {
			want := []string{"run 1", "run 1", "run 2", "run 3"}[i]
			if r := s.pay(path, path, ""); r.body != want {
				t.Errorf("%s: got %d %q, want %q", path, r.status, r.body, want)
			}
		}
	})
}

func TestBrokenRuns(t *testing.T) { onEachKey(t, testBrokenRuns) }

func testBrokenRuns(t *testing.T, mw framework) {
	t.Parallel()
	quiet := gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) })

	// This case covers hazard 50.
	t.Run("panic within a response", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/", quiet, mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
			if n := attempt(t, c); n < 3 {
				if n == 2 {
					c.Header("Content-Length", "4")
					c.String(http.StatusOK, "paid")
				}
				panic("card reader on fire")
			}
			c.String(http.StatusOK, "paid")
		})
		for n, want := range []reply{{status: 500}, {status: 500}, {status: 200, body: "paid"}, {status: 200, body: "paid"}} {
			r := s.pay("k", "/", "")
			if r.status != want.status || r.body != want.body || r.isReplay() != (n == 3) {
				t.Errorf("request %d: got %d %q, want %d %q", n+1, r.status, r.body, want.status, want.body)
			}
		}
	})

	t.Run("panic with AtMostOnce", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		s.POST("/", quiet, mw.Idempotent(s.runs(once.AtMostOnce()), mw.AnyCaller()), func(*gin.Context) {
			runs.Add(1)
			panic("card reader on fire")
		})
		s.pay("k", "/", "")
		for range 2 {
			r := s.pay("k", "/", "")
			if p := r.problem(t, http.StatusConflict); p["type"] != base+"idempotency-indeterminate" || r.header.Get("Retry-After") != "" {
				t.Errorf("got %v", p)
			}
		}
		if runs.Load() != 1 {
			t.Errorf("%d ran", runs.Load())
		}
	})

	t.Run("unknown outcome with AtMostOnce", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		for path, o := range map[string]*once.Once{"/again": s.runs(), "/never": s.runs(once.AtMostOnce())} {
			runs := atomic.Int32{}
			s.POST(path+"/:how", mw.Idempotent(o, mw.AnyCaller()), func(c *gin.Context) {
				_ = c.Error(fmt.Errorf("the bank timed out: %w", once.ErrIndeterminate))
				if c.Param("how") == "answer" {
					c.String(http.StatusBadGateway, "run %d", runs.Add(1))
				}
			})
			for i, want := range []string{"run 1", map[string]string{"/again": "run 2", "/never": "idempotency-indeterminate"}[path]} {
				if r := s.pay(path, path+"/answer", ""); !strings.Contains(r.body, want) {
					t.Errorf("%s, request %d: got %d %q, want %q", path, i+1, r.status, r.body, want)
				}
			}
			s.pay(path+"none", path+"/none", "")
			if r := s.pay(path+"none", path+"/none", ""); (r.status == http.StatusConflict) != (path == "/never") {
				t.Errorf("%s, without an answer: got %d %q", path, r.status, r.body)
			}
		}
	})

	t.Run("client leaves and response stored", func(t *testing.T) {
		t.Parallel()
		for name, opts := range map[string][]option{"ended": nil, "detached": {mw.Detached()}} {
			s, inside, done := mw.newSite(t), make(chan struct{}), make(chan struct{}, 2)
			var request context.Context
			above := func(c *gin.Context) { request = c.Request.Context(); c.Next(); done <- struct{}{} }
			s.POST("/", above, mw.Idempotent(s.runs(), mw.AnyCaller(), opts...), func(c *gin.Context) {
				close(inside)
				<-request.Done()
				if name == "ended" {
					within(t, "the handler's context ends too", c.Request.Context().Done())
				} else if err := c.Request.Context().Err(); err != nil {
					t.Errorf("the handler's context says %v", err)
				}
				c.String(http.StatusOK, "receipt")
			})
			ctx, leave := context.WithCancel(t.Context())
			go func() {
				<-inside
				leave()
			}()
			if _, err := s.try(ctx, "POST", "/", "body", "Idempotency-Key", "k"); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: the client got %v", name, err)
			}
			within(t, "the handler is done", done)
			if r := s.pay("k", "/", "body"); r.body != "receipt" || !r.isReplay() {
				t.Errorf("%s: got %d %q", name, r.status, r.body)
			}
		}
	})

	t.Run("client leaves without response", func(t *testing.T) {
		t.Parallel()
		for name, opts := range map[string][]once.Option{"again": nil, "at most once": {once.AtMostOnce()}} {
			s, inside, done := mw.newSite(t), make(chan struct{}, 2), make(chan struct{}, 2)
			above := func(c *gin.Context) { c.Next(); done <- struct{}{} }
			s.POST("/", above, mw.Idempotent(s.runs(opts...), mw.AnyCaller()), func(c *gin.Context) {
				if inside <- struct{}{}; attempt(t, c) == 1 {
					<-c.Request.Context().Done()
					if name != "again" {
						_ = c.Error(c.Request.Context().Err())
					}
					return
				}
				c.String(http.StatusOK, "receipt")
			})
			ctx, leave := context.WithCancel(t.Context())
			go func() {
				<-inside
				leave()
			}()
			_, _ = s.try(ctx, "POST", "/", "body", "Idempotency-Key", "k")
			within(t, "the handler is done", done)
			r := s.pay("k", "/", "body")
			if name == "again" && (r.body != "receipt" || r.isReplay()) {
				t.Errorf("got %d %q", r.status, r.body)
			}
			if name != "again" && r.problem(t, http.StatusConflict)["type"] != base+"idempotency-indeterminate" {
				t.Errorf("got %d %q", r.status, r.body)
			}
		}
	})

	// This case covers hazard 58.
	t.Run("lost lease", func(t *testing.T) {
		t.Parallel()
		for name, opts := range map[string][]option{"plain": nil, "detached": {mw.Detached()}} {
			s, pushed := mw.newSite(t), errorsOf{}
			gone := core.ErrLost
			o := s.runs(once.Acquire(core.TTL(2 * time.Second)))
			second := make(chan reply, 1)
			s.POST("/", pushed.collect, mw.Idempotent(o, mw.AnyCaller(), opts...), func(c *gin.Context) {
				if n := attempt(t, c); n > 1 {
					c.String(http.StatusOK, "of attempt %d", n)
					return
				}
				s.store.extend.Store(&gone)
				<-c.Request.Context().Done()
				s.store.extend.Store(nil) // the lease of the next run can be extended
				if cause := context.Cause(c.Request.Context()); !errors.Is(cause, core.ErrLost) {
					t.Errorf("%s: the cause is %v, want ErrLost", name, cause)
				}
				var r reply
				eventually(t, "a successor runs", func() bool { r = s.pay("k", "/", ""); return r.status == http.StatusOK })
				second <- r
				c.String(http.StatusOK, "of attempt 1")
			})
			if r := s.pay("k", "/", ""); r.body != "of attempt 1" || r.isReplay() {
				t.Errorf("%s: got %d %q", name, r.status, r.body)
			}
			if r := within(t, "the successor has its answer", second); r.body != "of attempt 2" || r.isReplay() {
				t.Errorf("%s: the successor got %d %q", name, r.status, r.body)
			}
			if r := s.pay("k", "/", ""); r.body != "of attempt 2" || !r.isReplay() {
				t.Errorf("%s: replayed is %d %q", name, r.status, r.body)
			}
			pushed.none(t)
		}
	})
}
