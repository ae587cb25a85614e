package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/httpmw"
)

// TestGivenUpInside checks a handler that returns without a response because an inner
// context is done. An empty 200 must not be stored for such a handler.
func TestGivenUpInside(t *testing.T) { onEachKey(t, testGivenUpInside) }

func testGivenUpInside(t *testing.T, mw framework) {
	t.Parallel()
	short := mw.Acquire(core.TTL(time.Second), core.NoRenew())
	lock := func(s *site, name string, opts ...option) gin.HandlerFunc {
		return mw.Lock(s.locker, name, mw.Param("id"), opts...)
	}
	timeOut := func(c *gin.Context) {
		ctx, cancel := context.WithTimeout(c.Request.Context(), time.Millisecond)
		defer cancel()
		c.Request = c.Request.WithContext(ctx)
		c.Next()
	}
	for name, inside := range map[string]func(s *site) []gin.HandlerFunc{
		"a lock":                 func(s *site) []gin.HandlerFunc { return []gin.HandlerFunc{lock(s, "a", short)} },
		"a lock around another":  func(s *site) []gin.HandlerFunc { return []gin.HandlerFunc{lock(s, "a", short), lock(s, "b")} },
		"a lock inside of other": func(s *site) []gin.HandlerFunc { return []gin.HandlerFunc{lock(s, "a"), lock(s, "b", short)} },
		"an Idempotent": func(s *site) []gin.HandlerFunc {
			o := s.runs(once.Acquire(core.TTL(time.Second), core.NoRenew()))
			return []gin.HandlerFunc{mw.Idempotent(o, func(*gin.Context) (string, error) { return "inside", nil })}
		},
		"a time-out":                  func(*site) []gin.HandlerFunc { return []gin.HandlerFunc{timeOut} },
		"a time-out inside of a lock": func(s *site) []gin.HandlerFunc { return []gin.HandlerFunc{lock(s, "a"), timeOut} },
	} {
		for _, atMostOnce := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s at most once %v", name, atMostOnce), func(t *testing.T) {
				t.Parallel()
				// The middleware leaves its context in gin's own request.
				if strings.HasPrefix(name, "a time-out") {
					mw.ofGin(t)
				}
				s, runs := mw.newSite(t), atomic.Int32{}
				var opts []once.Option
				if atMostOnce {
					opts = append(opts, once.AtMostOnce())
				}
				outer := mw.Idempotent(s.runs(opts...), mw.AnyCaller(), mw.Detached())
				s.POST("/:id", append(append([]gin.HandlerFunc{outer}, inside(s)...), func(c *gin.Context) {
					if runs.Add(1) == 1 {
						within(t, "the context ends", c.Request.Context().Done())
						return
					}
					c.String(http.StatusOK, "paid")
				})...)
				s.pay("k", "/1", "")
				if atMostOnce {
					p := s.pay("k", "/1", "").problem(t, http.StatusConflict)
					if p["type"] != base+"idempotency-indeterminate" || runs.Load() != 1 {
						t.Errorf("got %v after %d runs", p, runs.Load())
					}
					return
				}
				// On a machine that stalls for a second, further requests can be
				// refused before one runs.
				eventually(t, "it is run again", func() bool { return s.pay("k", "/1", "").body == "paid" })
			})
		}
	}

	t.Run("status beside an error", func(t *testing.T) {
		mw.ofGin(t)
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		s.POST("/:id", mw.Idempotent(s.runs(once.AtMostOnce()), mw.AnyCaller()), lock(s, "a", short), func(c *gin.Context) {
			runs.Add(1)
			within(t, "the context ends", c.Request.Context().Done())
			c.Status(http.StatusOK)
			_ = c.Error(context.Canceled)
		})
		s.pay("k", "/1", "")
		if p := s.pay("k", "/1", "").problem(t, http.StatusConflict); p["type"] != base+"idempotency-indeterminate" || runs.Load() != 1 {
			t.Errorf("got %v after %d runs", p, runs.Load())
		}
	})

	t.Run("200 beside another error", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		s.POST("/:id", mw.Idempotent(s.runs(), mw.AnyCaller()), lock(s, "a", short), func(c *gin.Context) {
			runs.Add(1)
			within(t, "the context ends", c.Request.Context().Done())
			c.Status(http.StatusOK)
			_ = c.Error(errors.New("no mail was sent"))
		})
		s.pay("k", "/1", "")
		if r := s.pay("k", "/1", ""); r.status != http.StatusOK || !r.isReplay() || runs.Load() != 1 {
			t.Errorf("got %d %q after %d runs", r.status, r.body, runs.Load())
		}
	})

	t.Run("response after the context is done", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		s.POST("/:id", mw.Idempotent(s.runs(), mw.AnyCaller()), lock(s, "a", short), func(c *gin.Context) {
			runs.Add(1)
			within(t, "the context ends", c.Request.Context().Done())
			c.Status(http.StatusOK)
		})
		s.pay("k", "/1", "")
		if r := s.pay("k", "/1", ""); r.status != http.StatusOK || !r.isReplay() || runs.Load() != 1 {
			t.Errorf("got %d %q after %d runs", r.status, r.body, runs.Load())
		}
	})
}

// TestStatus_ClientLeft checks that a status is a response, even if the
// client has disconnected before.
func TestStatus_ClientLeft(t *testing.T) { onEachKey(t, testStatus_ClientLeft) }

func testStatus_ClientLeft(t *testing.T, mw framework) {
	t.Parallel()
	s, runs, began := mw.newSite(t), atomic.Int32{}, make(chan struct{})
	s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
		if runs.Add(1) == 1 {
			close(began)
			within(t, "the client leaves", c.Request.Context().Done())
		}
		c.Status(http.StatusOK)
	})
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := s.try(ctx, "POST", "/", "", "Idempotency-Key", "k")
		left <- err
	}()
	within(t, "it runs", began)
	leave()
	if within(t, "the client leaves", left) == nil {
		t.Error("there was an answer")
	}
	var r reply
	eventually(t, "there is an answer", func() bool {
		r = s.pay("k", "/", "")
		return r.status != http.StatusConflict
	})
	if r.status != http.StatusOK || !r.isReplay() || runs.Load() != 1 {
		t.Errorf("got %d %q after %d runs", r.status, r.body, runs.Load())
	}
}

// TestKeepIf_Refusals checks that a KeepIf that stores everything does not
// store the refusals of an inner Lock.
func TestKeepIf_Refusals(t *testing.T) { onEachKey(t, testKeepIf_Refusals) }

func testKeepIf_Refusals(t *testing.T, mw framework) {
	t.Parallel()
	all := mw.KeepIf(func(httpmw.Kept) bool { return true })
	s := mw.newSite(t)
	mount := func(path string, opts ...option) {
		s.POST(path, mw.Idempotent(s.runs(), mw.AnyCaller(), all), mw.Lock(s.locker, "order", mw.JSON("id"), opts...), func(c *gin.Context) { c.String(http.StatusOK, "paid") })
	}
	mount("/try")
	mount("/wait", mw.Acquire(core.Wait(soon)))
	mount("/own", mw.Render(func(c *gin.Context, p httpmw.Problem) { c.String(http.StatusUnprocessableEntity, p.Title) }))
	short := mw.Lock(s.locker, "around", mw.JSON("id"), mw.Acquire(core.TTL(time.Second), core.NoRenew()))
	s.POST("/short", mw.Idempotent(s.runs(), mw.AnyCaller(), all), short, mw.Lock(s.locker, "order", mw.JSON("id"), mw.Acquire(core.Wait(soon))), func(c *gin.Context) {
		c.String(http.StatusOK, "paid")
	})
	release := s.hold("order:1")
	s.pay("busy", "/try", `{"id":"1"}`).problem(t, http.StatusConflict)
	if r := s.pay("own", "/own", `{"id":"1"}`); r.status != http.StatusUnprocessableEntity {
		t.Errorf("got %d %q", r.status, r.body)
	}
	// The outer lock (short) was lost while the request waited for the inner lock.
	s.pay("short", "/short", `{"id":"1"}`).problem(t, http.StatusServiceUnavailable)
	ctx, leave := context.WithCancel(t.Context())
	before := s.store.attempts.Load()
	left := make(chan error)
	go func() {
		_, err := s.try(ctx, "POST", "/wait", `{"id":"1"}`, "Idempotency-Key", "left")
		left <- err
	}()
	// There is one attempt for the run, and one for the lock.
	eventually(t, "it waits", func() bool { return s.store.attempts.Load() >= before+2 })
	leave()
	if within(t, "the client leaves", left) == nil {
		t.Error("there was an answer")
	}
	release()
	for key, path := range map[string]string{"busy": "/try", "own": "/own", "short": "/short"} {
		eventually(t, path+" is run again", func() bool { return s.pay(key, path, `{"id":"1"}`).status == http.StatusOK })
	}
	eventually(t, "the client that left gets its answer", func() bool {
		r := s.pay("left", "/wait", `{"id":"1"}`)
		if r.status != http.StatusOK && r.status != http.StatusConflict {
			t.Errorf("got %d %q", r.status, r.body)
		}
		return r.status == http.StatusOK
	})
	for range 2 {
		if r := s.pay("bad", "/try", `{}`); r.isReplay() || r.status != http.StatusBadRequest {
			t.Errorf("a missing key: got %d %q", r.status, r.body)
		}
	}
}

// TestDetachedFromTheBeginning checks clients that disconnect at random moments. The
// handler either does not run, or its context is not canceled.
func TestDetachedFromTheBeginning(t *testing.T) {
	requests := tally.Trials(3000)
	onEachKey(t, func(t *testing.T, mw framework) { testDetachedFromTheBeginning(t, mw, requests) })
}

func testDetachedFromTheBeginning(t *testing.T, mw framework, requests int) {
	t.Parallel()
	s, runs := mw.newSite(t), atomic.Int32{}
	s.POST("/", mw.Idempotent(s.runs(once.AtMostOnce()), mw.AnyCaller(), mw.Detached()), func(c *gin.Context) {
		runs.Add(1)
		if n := attempt(t, c); n != 1 {
			t.Errorf("attempt %d of a request that did not run before", n)
		}
		for range 5 {
			if err := c.Request.Context().Err(); err != nil {
				t.Errorf("the handler's context is done: %v", err)
			}
			runtime.Gosched()
		}
		c.Status(http.StatusOK)
	})
	for i := range requests {
		ctx, leave := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, "POST", "/", nil)
		r.Header.Set(mw.header, fmt.Sprint("k", i))
		gone := make(chan struct{})
		go func() {
			for range rand.N(60) {
				runtime.Gosched()
			}
			leave()
			close(gone)
		}()
		s.ServeHTTP(httptest.NewRecorder(), r)
		<-gone
		if r := s.pay(fmt.Sprint("k", i), "/", ""); i%20 == 0 && r.status != http.StatusOK {
			t.Fatalf("got %d %q", r.status, r.body)
		}
	}
	if int(runs.Load()) != requests {
		t.Errorf("%d runs", runs.Load())
	}
}
