package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestRefusedInside checks an outer Idempotent with an inner Lock, on Redis. It covers
// hazard 59.
func TestRefusedInside(t *testing.T) { onEachKey(t, testRefusedInside) }

func testRefusedInside(t *testing.T, mw framework) {
	t.Parallel()
	server := testserver.StartRedis(t)
	n := 0
	for _, opts := range [][]once.Option{nil, {once.AtMostOnce()}} {
		run := func(name string, f func(t *testing.T, s *site, id string)) {
			n++
			id := fmt.Sprint("r", n)
			t.Run(fmt.Sprintf("%s %d options", name, len(opts)), func(t *testing.T) {
				t.Parallel()
				f(t, mw.newReplica(t, server), id)
			})
		}
		outside := func(s *site) gin.HandlerFunc { return mw.Idempotent(s.runs(opts...), mw.AnyCaller()) }
		pay := func(t *testing.T) gin.HandlerFunc {
			return func(c *gin.Context) { c.String(http.StatusOK, "attempt %d", attempt(t, c)) }
		}

		run("attempt 1 after three busy locks", func(t *testing.T, s *site, id string) {
			s.POST("/:id", outside(s), mw.Lock(s.locker, "order", mw.Param("id")), pay(t))
			release := s.hold(core.Key("order", id))
			for range 3 {
				s.pay(id, "/"+id, "").problem(t, http.StatusConflict)
			}
			release()
			for _, replay := range []bool{false, true} {
				if r := s.pay(id, "/"+id, ""); r.body != "attempt 1" || r.isReplay() != replay {
					t.Errorf("got %d %q, a replay is %v", r.status, r.body, r.isReplay())
				}
			}
		})

		run("wait that timed out", func(t *testing.T, s *site, id string) {
			timeOut := func(c *gin.Context) {
				ctx, cancel := context.WithTimeout(c.Request.Context(), 50*time.Millisecond)
				defer cancel()
				c.Request = c.Request.WithContext(ctx)
				c.Next()
			}
			s.POST("/:id", outside(s), timeOut, mw.Lock(s.locker, "order", mw.Param("id"), mw.Acquire(core.Wait(soon))), func(c *gin.Context) {
				c.Status(http.StatusOK)
				_, _ = fmt.Fprintf(c.Writer, "attempt %d", attempt(t, c))
			})
			release := s.hold(core.Key("order", id))
			for range 3 {
				s.pay(id, "/"+id, "").problem(t, http.StatusServiceUnavailable)
			}
			release()
			var r reply
			eventually(t, "it has time enough", func() bool {
				r = s.pay(id, "/"+id, "")
				return r.status == http.StatusOK
			})
			if r.body != "attempt 1" {
				t.Errorf("got %q", r.body)
			}
		})

		run("store down inside", func(t *testing.T, s *site, id string) {
			down := &stub{Store: memstore.New()}
			locks, err := core.New(down)
			if err != nil {
				t.Fatal(err)
			}
			s.POST("/:id", outside(s), mw.Lock(s.locker, "order", mw.Param("id")), mw.Lock(locks, "other", mw.Param("id")), pay(t))
			unavailable := core.ErrUnavailable
			down.acquire.Store(&unavailable)
			for range 3 {
				s.pay(id, "/"+id, "").problem(t, http.StatusServiceUnavailable)
			}
			down.acquire.Store(nil)
			if r := s.pay(id, "/"+id, ""); r.body != "attempt 1" {
				t.Errorf("got %d %q", r.status, r.body)
			}
		})

		run("key missing inside", func(t *testing.T, s *site, id string) {
			s.POST("/:id", outside(s), mw.Lock(s.locker, "tenant", mw.Header("X-Tenant")), pay(t))
			for range 3 {
				r := s.pay(id, "/"+id, "")
				if r.problem(t, http.StatusBadRequest); r.isReplay() {
					t.Error("the refusal was kept")
				}
			}
			if r := s.pay(id, "/"+id, "", "X-Tenant", "9"); r.body != "attempt 1" {
				t.Errorf("got %d %q", r.status, r.body)
			}
		})

		run("no route or method", func(t *testing.T, s *site, id string) {
			mw.ofGin(t)
			next := mw.newReplica(t, server) // a replica with the next version of the program
			for _, s := range []*site{s, next} {
				s.HandleMethodNotAllowed = true
				s.Use(outside(s), mw.Lock(s.locker, "order", mw.Param("id")))
			}
			s.GET("/method/:id", mustNotRun(t))
			next.POST("/route/:id", pay(t))
			next.POST("/method/:id", pay(t))
			for path, want := range map[string]int{"/route/": http.StatusNotFound, "/method/": http.StatusMethodNotAllowed} {
				for range 3 {
					if r := s.pay(path+id, path+id, ""); r.status != want || r.isReplay() {
						t.Errorf("got %d %q, a replay is %v", r.status, r.body, r.isReplay())
					}
				}
				if r := next.pay(path+id, path+id, ""); r.body != "attempt 1" {
					t.Errorf("got %d %q", r.status, r.body)
				}
			}
		})

		run("NoRoute handler responds", func(t *testing.T, s *site, id string) {
			s.Use(outside(s))
			s.NoRoute(func(c *gin.Context) { c.String(http.StatusNotFound, "attempt %d", attempt(t, c)) })
			for _, replay := range []bool{false, true} {
				if r := s.pay(id, "/"+id, ""); r.body != "attempt 1" || r.isReplay() != replay {
					t.Errorf("got %d %q, a replay is %v", r.status, r.body, r.isReplay())
				}
			}
		})

		run("busy lock of the handler", func(t *testing.T, s *site, id string) {
			attempts := make(chan int, 4)
			s.POST("/:id", outside(s), mw.Lock(s.locker, "order", mw.Param("id")), func(c *gin.Context) {
				attempts <- attempt(t, c)
				err := s.locker.Do(c.Request.Context(), core.Key("hand", id), func(context.Context) error { return nil }, core.Wait(0))
				if errors.Is(err, core.ErrBusy) {
					c.Status(http.StatusConflict)
					return
				}
				c.Status(http.StatusOK)
			})
			release := s.hold(core.Key("hand", id))
			for range 2 {
				if r := s.pay(id, "/"+id, ""); r.status != http.StatusConflict {
					t.Errorf("got %d %q", r.status, r.body)
				}
			}
			release()
			if r := s.pay(id, "/"+id, ""); r.status != http.StatusOK {
				t.Errorf("got %d %q", r.status, r.body)
			}
			wantAttempts(t, attempts, 1, 2, 3)
		})

		run("attempt asked before a refusal", func(t *testing.T, s *site, id string) {
			attempts := make(chan int, 4)
			charge := func(c *gin.Context) { attempts <- attempt(t, c) }
			s.POST("/:id", outside(s), charge, mw.Lock(s.locker, "order", mw.Param("id")), ok)
			release := s.hold(core.Key("order", id))
			for range 2 {
				s.pay(id, "/"+id, "").problem(t, http.StatusConflict)
			}
			release()
			if r := s.pay(id, "/"+id, ""); r.status != http.StatusOK {
				t.Errorf("got %d %q", r.status, r.body)
			}
			wantAttempts(t, attempts, 1, 2, 3)
		})

		// after checks that a handler's 201 is stored, although an inner Lock refuses.
		after := func(t *testing.T, s *site, id string, pay gin.HandlerFunc) {
			t.Helper()
			var runs atomic.Int32
			s.POST("/:id", outside(s), func(c *gin.Context) {
				runs.Add(1)
				pay(c)
			}, mw.Lock(s.locker, "order", mw.Param("id")), mustNotRun(t))
			defer s.hold(core.Key("order", id))()
			for _, replay := range []bool{false, true} {
				if r := s.pay(id, "/"+id, ""); r.status != http.StatusCreated || r.isReplay() != replay || runs.Load() != 1 {
					t.Errorf("got %d %q after %d runs, replay %v, want 201 after 1 run", r.status, r.body, runs.Load(), r.isReplay())
				}
			}
		}

		run("refusal to another writer", func(t *testing.T, s *site, id string) {
			after(t, s, id, func(c *gin.Context) {
				own := c.Writer
				c.Writer = gin.CreateTestContextOnly(httptest.NewRecorder(), anyEngine()).Writer
				c.Next()
				c.Writer = own
				c.String(http.StatusCreated, "paid")
			})
		})

		run("own 409 after a refusal elsewhere", func(t *testing.T, s *site, id string) {
			var runs atomic.Int32
			s.POST("/:id", outside(s), func(c *gin.Context) {
				if runs.Add(1) == 2 {
					c.String(http.StatusOK, "attempt %d", attempt(t, c))
					c.Abort()
					return
				}
				own := c.Writer
				c.Writer = gin.CreateTestContextOnly(httptest.NewRecorder(), anyEngine()).Writer
				c.Next()
				c.Writer = own
				c.String(http.StatusConflict, "paid in part")
			}, mw.Lock(s.locker, "order", mw.Param("id")), mustNotRun(t))
			release := s.hold(core.Key("order", id))
			s.pay(id, "/"+id, "")
			release()
			if r := s.pay(id, "/"+id, ""); r.body != "attempt 2" {
				t.Errorf("got %d %q, want attempt 2", r.status, r.body)
			}
		})

		run("refusal past the middleware", func(t *testing.T, s *site, id string) {
			mw.ofGin(t)
			s.POST("/past/:id", outside(s), func(c *gin.Context) {
				c.Request.URL.Path = "/" + id
				s.HandleContext(c)
			})
			s.POST("/:id", mw.Lock(s.locker, "tenant", mw.Header("X-Tenant")), pay(t))
			for range 2 {
				if r := s.pay(id, "/past/"+id, ""); r.status != http.StatusBadRequest {
					t.Errorf("got %d %q, want 400 without a stored run", r.status, r.body)
				}
			}
		})

		run("200 in place of 499", func(t *testing.T, s *site, id string) {
			s.POST("/:id", outside(s), func(c *gin.Context) {
				r := c.Request
				ctx, leave := context.WithCancel(r.Context())
				leave()
				c.Request = r.WithContext(ctx)
				if c.Next(); !c.Writer.Written() {
					c.JSON(http.StatusOK, "done")
				}
				c.Request = r
			}, mw.Lock(s.locker, "order", mw.Param("id")), mustNotRun(t))
			for range 2 {
				if r := s.pay(id, "/"+id, ""); r.isReplay() {
					t.Errorf("got %d %q, a replay, want no stored response", r.status, r.body)
				}
			}
		})

		run("refusal after a response", func(t *testing.T, s *site, id string) {
			after(t, s, id, func(c *gin.Context) {
				c.String(http.StatusCreated, "paid")
				c.Next()
			})
		})

		run("unknown outcome before a refusal", func(t *testing.T, s *site, id string) {
			s.POST("/:id", outside(s), func(c *gin.Context) { _ = c.Error(once.ErrIndeterminate) }, mw.Lock(s.locker, "order", mw.Param("id")), pay(t))
			release := s.hold(core.Key("order", id))
			s.pay(id, "/"+id, "").problem(t, http.StatusConflict)
			release()
			if r := s.pay(id, "/"+id, ""); len(opts) == 0 && r.body != "attempt 2" || len(opts) > 0 && r.problem(t, http.StatusConflict)["type"] != base+"idempotency-indeterminate" {
				t.Errorf("got %d %q", r.status, r.body)
			}
		})
	}
}

func wantAttempts(t *testing.T, attempts <-chan int, want ...int) {
	t.Helper()
	for _, want := range want {
		if n := within(t, "it ran", attempts); n != want {
			t.Errorf("attempt %d, want %d", n, want)
		}
	}
}
