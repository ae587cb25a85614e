package httpmw_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
)

func TestIdempotentWithoutStore(t *testing.T) { onEachKey(t, testIdempotentWithoutStore) }

func testIdempotentWithoutStore(t *testing.T, mw framework) {
	t.Parallel()

	t.Run("store down is 503", func(t *testing.T) {
		t.Parallel()
		s, pushed := mw.newSite(t), errorsOf{}
		s.POST("/", pushed.collect, mw.Idempotent(s.runs(), mw.AnyCaller()), mustNotRun(t))
		down := fmt.Errorf("dial 10.0.0.7: %w", core.ErrUnavailable)
		s.storeFails(down)
		r := s.pay("k", "/", "")
		p := r.problem(t, http.StatusServiceUnavailable)
		if p["type"] != base+"idempotency-unavailable" || r.header.Get("Retry-After") != "1" || p["retry_after_ms"] != 1000.0 {
			t.Errorf("got %v, Retry-After %q", p, r.header.Get("Retry-After"))
		}
		if err := pushed.only(t); !errors.Is(err, down) {
			t.Errorf("c.Errors has %v", err)
		}
	})

	t.Run("unsupported store is 500", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), mustNotRun(t))
		s.storeFails(core.ErrUnsupported)
		p := s.pay("k", "/", "").problem(t, http.StatusInternalServerError)
		if p["type"] != base+"idempotency-failed" || p["retry_after_ms"] != nil {
			t.Errorf("got %v", p)
		}
	})

	t.Run("a closed locker is 503", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), mustNotRun(t))
		if err := s.locker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p := s.pay("k", "/", "").problem(t, http.StatusServiceUnavailable); p["type"] != base+"idempotency-unavailable" {
			t.Errorf("got %v", p)
		}
	})

	t.Run("response not stored is sent", func(t *testing.T) {
		t.Parallel()
		s, pushed := mw.newSite(t), errorsOf{}
		s.POST("/", pushed.collect, mw.Idempotent(s.runs(once.Acquire(core.TTL(10*time.Second))), mw.AnyCaller()), func(c *gin.Context) {
			if n := attempt(t, c); n > 1 {
				t.Errorf("attempt %d", n)
				return
			}
			down := core.ErrUnavailable
			s.store.release.Store(&down)
			c.String(http.StatusOK, "receipt")
		})
		if r := s.pay("k", "/", ""); r.status != http.StatusOK || r.body != "receipt" || r.isReplay() {
			t.Errorf("got %d %q", r.status, r.body)
		}
		pushed.none(t)
		// The response is stored as soon as the store is back.
		s.store.release.Store(nil)
		eventually(t, "the answer is kept", func() bool { return s.pay("k", "/", "").isReplay() })
	})

	t.Run("unreadable response is 500", func(t *testing.T) {
		t.Parallel()
		s, pushed := mw.newSite(t), errorsOf{}
		o := s.runs()
		s.POST("/:value", pushed.collect, mw.Idempotent(o, mw.AnyCaller()), mustNotRun(t))
		// The stored values are empty, of a later version, and truncated.
		for _, value := range []string{"", "\x02\x00\xc8\x01\x00", "\x01"} {
			key := fmt.Sprintf("k%x", value)
			_, err := o.Do(t.Context(), once.Call{Name: "http", Scope: "any", Key: key, Fingerprint: fingerprintOf("POST", "/x")},
				func(context.Context) (once.Answer, error) { return once.Answer{Value: []byte(value)}, nil })
			if err != nil {
				t.Fatal(err)
			}
			if p := s.pay(key, "/x", "").problem(t, http.StatusInternalServerError); p["type"] != base+"idempotency-failed" {
				t.Errorf("got %v", p)
			}
		}
	})

	t.Run("time-out and leave while waiting", func(t *testing.T) {
		t.Parallel()
		s, inside, finish, statuses := mw.newSite(t), make(chan struct{}), make(chan struct{}), make(chan int, 5)
		limit := func(c *gin.Context) {
			if c.GetHeader("X-Limit") != "" {
				ctx, cancel := context.WithTimeout(c.Request.Context(), 50*time.Millisecond)
				defer cancel()
				c.Request = c.Request.WithContext(ctx)
			}
			c.Next()
			statuses <- c.Writer.Status()
		}
		o := s.runs(once.Acquire(core.Wait(time.Hour)))
		s.POST("/", limit, mw.Idempotent(o, mw.AnyCaller()), func(c *gin.Context) {
			close(inside)
			within(t, "the handler may end", finish)
		})
		s.POST("/detached", limit, func(c *gin.Context) { c.Request.URL.Path = "/" }, mw.Idempotent(o, mw.AnyCaller(), mw.Detached()), mustNotRun(t))
		first := make(chan reply, 1)
		go func() { first <- s.pay("k", "/", "") }()
		within(t, "the handler runs", inside)
		for _, path := range []string{"/", "/detached"} {
			if p := s.pay("k", path, "", "X-Limit", "yes").problem(t, http.StatusServiceUnavailable); p["type"] != base+"idempotency-timeout" {
				t.Errorf("got %v", p)
			}
			<-statuses
			s.leaveWaiting("k", path, "")
			if status := within(t, "the request is over", statuses); status != 499 {
				t.Errorf("%s: the access log shows %d", path, status)
			}
		}
		close(finish)
		if r := within(t, "the first is answered", first); r.status != http.StatusOK {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})
	t.Run("client leaves with body unread", func(t *testing.T) {
		t.Parallel()
		s, inside, finish, statuses := mw.newSite(t), make(chan struct{}), make(chan struct{}), make(chan int, 3)
		above := func(c *gin.Context) { c.Next(); statuses <- c.Writer.Status() }
		o := s.runs(once.Acquire(core.Wait(time.Hour)))
		s.POST("/:id", above, mw.Idempotent(o, mw.AnyCaller(), mw.Fingerprint(mw.Param("id"))), func(*gin.Context) {
			close(inside)
			within(t, "the handler may end", finish)
		})
		go s.pay("k", "/5", "a body")
		within(t, "the handler runs", inside)
		s.leaveWaiting("k", "/5", "a body")
		if status := within(t, "the request is over", statuses); status != 499 {
			t.Errorf("the access log shows %d", status)
		}
		close(finish)
		within(t, "the first is over", statuses)
	})
}

// fingerprintOf returns the fingerprint of a request without query, media type and
// body.
func fingerprintOf(method, path string) []byte {
	var b []byte
	for _, part := range []string{"whole", method, path, "", ""} {
		b = append(append(b, byte(len(part))), part...)
	}
	sum := sha256.Sum256(b)
	return sum[:]
}
