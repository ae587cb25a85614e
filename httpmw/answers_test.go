package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/httpmw"
)

const base = "https://github.com/lockkit/lockkit/blob/main/httpmw/PROBLEMS.md#"

func TestAnswers(t *testing.T) { onEach(t, testAnswers) }

func testAnswers(t *testing.T, mw framework) {
	t.Parallel()

	t.Run("busy lock is 409", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			hint    time.Duration
			seconds string
			millis  float64
		}{
			{0, "1", 1000}, {time.Microsecond, "1", 1}, {300 * time.Millisecond, "1", 300}, {time.Second, "1", 1000},
			{1001 * time.Millisecond, "1", 1000}, {30 * time.Second, "1", 1000},
		} {
			s, pushed := mw.newSite(t), errorsOf{}
			s.GET("/:id", pushed.collect, mw.Lock(s.locker, "order", mw.Param("id")), mustNotRun(t))
			s.storeFails(&core.BusyError{RetryAfter: c.hint})
			r := s.send("GET", "/5", "")
			p := r.problem(t, http.StatusConflict)
			if r.header.Get("Retry-After") != c.seconds || p["retry_after_ms"] != c.millis {
				t.Errorf("hint %v: Retry-After %q and %v ms, want %q and %v", c.hint, r.header.Get("Retry-After"), p["retry_after_ms"], c.seconds, c.millis)
			}
			if p["type"] != base+"lock-busy" || p["lock"] != "order" || p["title"] == "" || p["detail"] == "" {
				t.Errorf("got %v", p)
			}
			pushed.none(t)
		}
	})

	t.Run("lock busy for the whole wait", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.GET("/:id", mw.Lock(s.locker, "order", mw.Param("id"), mw.Acquire(core.Wait(20*time.Millisecond))), mustNotRun(t))
		s.hold("order:5")
		if r := s.send("GET", "/5", ""); r.problem(t, http.StatusConflict)["type"] != base+"lock-busy" {
			t.Errorf("got %q", r.body)
		}
	})

	t.Run("store down is 503", func(t *testing.T) {
		t.Parallel()
		s, pushed := mw.newSite(t), errorsOf{}
		s.GET("/:id", pushed.collect, mw.Lock(s.locker, "order", mw.Param("id")), mustNotRun(t))
		down := fmt.Errorf("dial 10.0.0.7: %w", core.ErrUnavailable)
		s.storeFails(down)
		r := s.send("GET", "/secret-42", "")
		p := r.problem(t, http.StatusServiceUnavailable)
		if p["type"] != base+"lock-unavailable" || p["retry_after_ms"] != 1000.0 || r.header.Get("Retry-After") != "1" {
			t.Errorf("got %v, Retry-After %q", p, r.header.Get("Retry-After"))
		}
		if strings.Contains(r.body, "10.0.0.7") || strings.Contains(r.body, "secret") {
			t.Errorf("the answer says too much: %q", r.body)
		}
		if err := pushed.only(t); !errors.Is(err, core.ErrUnavailable) || !errors.Is(err, down) {
			t.Errorf("c.Errors has %v", err)
		}
	})

	t.Run("closed locker is 503", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.GET("/:id", mw.Lock(s.locker, "order", mw.Param("id")), mustNotRun(t))
		if err := s.locker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := s.send("GET", "/5", "")
		if p := r.problem(t, http.StatusServiceUnavailable); p["type"] != base+"lock-unavailable" || r.header.Get("Retry-After") != "1" {
			t.Errorf("got %v", p)
		}
	})

	t.Run("locker closes during a wait", func(t *testing.T) {
		t.Parallel()
		s, got := mw.newSite(t), make(chan reply, 1)
		s.GET("/:id", mw.Lock(s.locker, "order", mw.Param("id"), mw.Acquire(core.Wait(time.Hour))), mustNotRun(t))
		release := s.hold("order:5")
		go func() { got <- s.send("GET", "/5", "") }()
		eventually(t, "the request waits", func() bool { return s.store.attempts.Load() > 2 })
		closed := make(chan error, 1)
		go func() { closed <- s.locker.Close(context.Background()) }()
		within(t, "the request is answered", got).problem(t, http.StatusServiceUnavailable)
		release()
		if err := within(t, "the locker is closed", closed); err != nil {
			t.Error(err)
		}
	})

	t.Run("unsupported lock is 500", func(t *testing.T) {
		t.Parallel()
		s, pushed := mw.newSite(t), errorsOf{}
		s.GET("/:id", pushed.collect, mw.Lock(s.locker, "order", mw.Param("id"), mw.Acquire(core.Shared())), mustNotRun(t))
		s.storeFails(core.ErrUnsupported)
		p := s.send("GET", "/5", "").problem(t, http.StatusInternalServerError)
		if p["type"] != base+"lock-failed" || p["retry_after_ms"] != nil {
			t.Errorf("got %v", p)
		}
		if err := pushed.only(t); !errors.Is(err, core.ErrUnsupported) {
			t.Errorf("c.Errors has %v", err)
		}
	})

	t.Run("request times out while waiting", func(t *testing.T) {
		t.Parallel()
		s, pushed := mw.newSite(t), errorsOf{}
		timeout := func(c *gin.Context) {
			ctx, cancel := context.WithTimeout(c.Request.Context(), 50*time.Millisecond)
			defer cancel()
			c.Request = c.Request.WithContext(ctx)
			c.Next()
		}
		s.GET("/:id", pushed.collect, timeout, mw.Lock(s.locker, "order", mw.Param("id"), mw.Acquire(core.Wait(time.Hour))), mustNotRun(t))
		s.hold("order:5")
		r := s.send("GET", "/5", "")
		if p := r.problem(t, http.StatusServiceUnavailable); p["type"] != base+"lock-timeout" || r.header.Get("Retry-After") != "1" {
			t.Errorf("got %v", p)
		}
		pushed.none(t)
	})

	t.Run("client leaves while waiting", func(t *testing.T) {
		t.Parallel()
		// The server notices that a client disconnects only after the body was read.
		for _, body := range []string{"", `{"id":5}`} {
			s, status := mw.newSite(t), make(chan int, 1)
			outer := func(c *gin.Context) {
				c.Next()
				status <- c.Writer.Status()
				if c.Writer.Written() {
					t.Error("something was written")
				}
			}
			s.POST("/:id", outer, mw.Lock(s.locker, "order", mw.Param("id"), mw.Acquire(core.Wait(time.Hour))), mustNotRun(t))
			s.hold("order:5")
			ctx, leave := context.WithCancel(t.Context())
			go func() {
				eventually(t, "the request waits", func() bool { return s.store.attempts.Load() > 2 })
				leave()
			}()
			if _, err := s.try(ctx, "POST", "/5", body); !errors.Is(err, context.Canceled) {
				t.Errorf("the client got %v", err)
			}
			if got := within(t, "the middleware has returned", status); got != 499 {
				t.Errorf("the access log shows %d, want 499", got)
			}
		}
	})

	t.Run("error of a KeyFunc", func(t *testing.T) {
		t.Parallel()
		s, pushed := mw.newSite(t), errorsOf{}
		session := errors.New("no session of alice@example.com")
		custom := func(c *gin.Context) (string, error) {
			if c.Query("bad") != "" {
				return "", fmt.Errorf("order of alice@example.com: %w", core.ErrInvalid)
			}
			return "", session
		}
		s.GET("/", pushed.collect, mw.Lock(s.locker, "order", custom), mustNotRun(t))
		r := s.send("GET", "/?bad=1", "")
		if p := r.problem(t, http.StatusBadRequest); p["type"] != base+"key-invalid" || p["retry_after_ms"] != nil || strings.Contains(r.body, "alice") {
			t.Errorf("got %q", r.body)
		}
		pushed.none(t)
		r = s.send("GET", "/", "")
		if p := r.problem(t, http.StatusInternalServerError); p["type"] != base+"lock-failed" || strings.Contains(r.body, "alice") {
			t.Errorf("got %q", r.body)
		}
		if err := pushed.only(t); !errors.Is(err, session) {
			t.Errorf("c.Errors has %v", err)
		}
		if s.store.attempts.Load() != 0 {
			t.Error("the store was asked")
		}
	})

	t.Run("no response contains the key", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.GET("/", mw.Lock(s.locker, "order", mw.Query("id")), ok)
		s.hold("order:secret-77")
		for _, path := range []string{"/?id=secret-77", "/?id=secret-77&id=secret-77", "/?id=secret-77%00"} {
			if r := s.send("GET", path, ""); r.status < 400 || strings.Contains(r.body+fmt.Sprint(r.header), "secret") {
				t.Errorf("%s: got %d %q", path, r.status, r.body)
			}
		}
	})

	t.Run("routes that do not exist", func(t *testing.T) {
		mw.ofGin(t)
		t.Parallel()
		for name, key := range map[string]httpmw.KeyFunc{"param": mw.Param("id"), "query": mw.Query("id")} {
			s, pushed := mw.newSite(t), errorsOf{}
			s.HandleMethodNotAllowed = true
			s.Use(pushed.collect, mw.Lock(s.locker, "order", key))
			s.GET("/orders/:id", ok)
			if r := s.send("GET", "/nowhere", ""); r.status != http.StatusNotFound || r.body != "404 page not found" {
				t.Errorf("%s: got %d %q", name, r.status, r.body)
			}
			r := s.send("POST", "/orders/5", "")
			if r.status != http.StatusMethodNotAllowed || r.body != "405 method not allowed" || r.header.Get("Allow") != "GET" {
				t.Errorf("%s: got %d %q", name, r.status, r.body)
			}
			if r := s.send("GET", "/orders/5?id=5", ""); r.body != "order:5" {
				t.Errorf("%s: got %d %q", name, r.status, r.body)
			}
			pushed.none(t)
		}
	})

	t.Run("NoRoute handler runs under the lock", func(t *testing.T) {
		mw.ofGin(t)
		t.Parallel()
		s := mw.newSite(t)
		s.NoRoute(mw.Lock(s.locker, "order", mw.Query("id")), func(c *gin.Context) {
			if s.isFree("order:5") {
				t.Error("the key is free while the handler runs")
			}
			ok(c)
		})
		if r := s.send("GET", "/any?id=5", ""); r.body != "order:5" {
			t.Errorf("got %d %q", r.status, r.body)
		}
		if r := s.send("GET", "/any", ""); r.status != http.StatusNotFound || r.body != "404 page not found" {
			t.Errorf("got %d %q, want 404", r.status, r.body)
		}
	})

	t.Run("HEAD is refused like GET", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.HEAD("/:id", mw.Lock(s.locker, "order", mw.Param("id")), mustNotRun(t))
		s.hold("order:5")
		if r := s.send("HEAD", "/5", ""); r.status != http.StatusConflict || r.header.Get("Retry-After") == "" {
			t.Errorf("got %d %v", r.status, r.header)
		}
	})
}

func (s *site) storeFails(err error) { s.store.acquire.Store(&err) }

func mustNotRun(t *testing.T) gin.HandlerFunc {
	var runs atomic.Int32
	t.Cleanup(func() {
		if n := runs.Load(); n != 0 {
			t.Errorf("the handler ran %d times", n)
		}
	})
	return func(*gin.Context) { runs.Add(1) }
}
