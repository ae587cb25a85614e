package httpmw_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

func TestLockReenters(t *testing.T) { onEach(t, testLockReenters) }

func testLockReenters(t *testing.T, mw framework) {
	t.Parallel()

	t.Run("handler locks its own key", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.GET("/:id", mw.Lock(s.locker, "order", mw.Param("id")), func(c *gin.Context) {
			outer, _ := core.LeaseFromContext(c.Request.Context())
			err := s.locker.Do(c.Request.Context(), core.Key("order", c.Param("id")), func(ctx context.Context) error {
				if inner, _ := core.LeaseFromContext(ctx); inner == outer || inner.Token() != outer.Token() {
					t.Error("not another lease with the same token")
				}
				return nil
			}, core.Wait(0))
			if err != nil {
				t.Error(err)
			}
			if s.isFree("order:5") {
				t.Error("the inner release freed the key")
			}
			ok(c)
		})
		if r := s.send("GET", "/5", ""); r.body != "order:5" {
			t.Errorf("got %d %q", r.status, r.body)
		}
		if !s.isFree("order:5") {
			t.Error("the key is not free")
		}
	})

	t.Run("two middlewares with same key", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.Use(mw.Lock(s.locker, "order", mw.Query("id")))
		s.GET("/:id", mw.Lock(s.locker, "order", mw.Param("id")), func(c *gin.Context) {
			if s.isFree("order:5") {
				t.Error("the key is free while the handler runs")
			}
			ok(c)
		})
		if r := s.send("GET", "/5?id=5", ""); r.body != "order:5" {
			t.Errorf("got %d %q", r.status, r.body)
		}
		if !s.isFree("order:5") {
			t.Error("the key is not free")
		}
	})

	t.Run("two middlewares with different names", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.GET("/:id", mw.Lock(s.locker, "tenant", mw.Header("X-Tenant")), mw.Lock(s.locker, "order", mw.Param("id")), func(c *gin.Context) {
			if s.isFree("order:5") || s.isFree("tenant:acme") {
				t.Error("a key is free while the handler runs")
			}
			ok(c)
		})
		if r := s.send("GET", "/5", "", "X-Tenant", "acme"); r.body != "order:5" {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})

	t.Run("outer lease lost while waiting", func(t *testing.T) {
		t.Parallel()
		s, pushed := mw.newSite(t), errorsOf{}
		gone := core.ErrLost
		s.store.extend.Store(&gone)
		outer := mw.Lock(s.locker, "tenant", mw.Param("id"), mw.Acquire(core.TTL(300*time.Millisecond)))
		inner := mw.Lock(s.locker, "order", mw.Param("id"), mw.Acquire(core.Wait(time.Hour)))
		s.GET("/:id", pushed.collect, outer, inner, mustNotRun(t))
		s.hold("order:5")
		p := s.send("GET", "/5", "").problem(t, http.StatusServiceUnavailable)
		if p["type"] != base+"lock-unavailable" {
			t.Errorf("type is %v", p["type"])
		}
		if err := pushed.only(t); !errors.Is(err, core.ErrLost) {
			t.Errorf("c.Errors has %v, want ErrLost", err)
		}
	})

	t.Run("outer lease lost before", func(t *testing.T) {
		t.Parallel()
		s, pushed := mw.newSite(t), errorsOf{}
		gone := core.ErrLost
		s.store.extend.Store(&gone)
		lock := mw.Lock(s.locker, "order", mw.Param("id"), mw.Acquire(core.TTL(300*time.Millisecond)))
		s.GET("/:id", pushed.collect, lock, func(c *gin.Context) { <-c.Request.Context().Done() }, lock, func(c *gin.Context) {
			t.Error("the handler ran")
		})
		p := s.send("GET", "/5", "").problem(t, http.StatusServiceUnavailable)
		if p["type"] != base+"lock-unavailable" {
			t.Errorf("type is %v", p["type"])
		}
		if err := pushed.only(t); !errors.Is(err, core.ErrLost) {
			t.Errorf("c.Errors has %v, want ErrLost", err)
		}
	})
}
