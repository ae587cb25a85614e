package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw"
)

// TestCheck runs alone, because the whole program shares the names that were passed to
// Param.
func TestCheck(t *testing.T) {
	_ = httpmw.Check(gin.New()) // forget the names of other tests
	s := onGin.newSite(t)
	router := func(param, path string) *gin.Engine {
		r := gin.New()
		r.ContextWithFallback = true
		r.POST(path, httpmw.Lock(s.locker, "order", httpmw.Param(param)), ok)
		return r
	}
	wrong := router("idd", "/orders/:id/pay")
	for range 2 { // a second Check reports the same
		err := httpmw.Check(wrong)
		if !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), `"idd"`) || strings.Contains(err.Error(), `"id"`) {
			t.Errorf("a name that no route has: got %v", err)
		}
	}
	for param, path := range map[string]string{
		"id": "/orders/:id/pay", "path": "/files/*path", "name": "/user_:name", "b": "/:a/:b", "v": `/v1\:pay/:v`,
	} {
		if err := httpmw.Check(router(param, path)); err != nil {
			t.Errorf("%s has %s: got %v", path, param, err)
		}
	}
	for param, path := range map[string]string{"orders": "/orders/:id", ":id": "/:id", "pay": `/v1\:pay/:v`, "i": "/:id"} {
		if err := httpmw.Check(router(param, path)); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%s does not have %s: got %v", path, param, err)
		}
	}
	wrong.POST("/more/:idd", ok)
	if err := httpmw.Check(wrong); err != nil {
		t.Errorf("with such a route: got %v", err)
	}
	both := router("idd", "/orders/:id/pay")
	both.POST("/", httpmw.Lock(s.locker, "order", httpmw.Join(httpmw.Query("a"), httpmw.Param("jd"))), ok)
	if err := httpmw.Check(both); err == nil || !strings.Contains(err.Error(), `"idd"`) || !strings.Contains(err.Error(), `"jd"`) {
		t.Errorf("two names: got %v", err)
	}
	if err := httpmw.Check(nil); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("no engine: got %v", err)
	}
}

// TestCheck_ContextWithFallback runs alone, like TestCheck.
func TestCheck_ContextWithFallback(t *testing.T) {
	s := onGin.newSite(t)
	all := httpmw.KeyFunc(func(*gin.Context) (string, error) { return "all", nil })
	for name, mount := range map[string]func(r *gin.Engine){
		"Lock":       func(r *gin.Engine) { r.POST("/", httpmw.Lock(s.locker, "order", all), ok) },
		"Idempotent": func(r *gin.Engine) { r.POST("/", httpmw.Idempotent(s.runs(), all), ok) },
		"on a group": func(r *gin.Engine) { r.Group("/pay").Use(httpmw.Lock(s.locker, "order", all)).POST("/", ok) },
	} {
		t.Run(name, func(t *testing.T) {
			_ = httpmw.Check(gin.New()) // forget the middlewares of other tests
			r := gin.New()
			if err := httpmw.Check(r); err != nil {
				t.Errorf("got %v without a middleware, want nil", err)
			}
			mount(r)
			for range 2 {
				if err := httpmw.Check(r); !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), "ContextWithFallback") {
					t.Errorf("got %v, want one that names ContextWithFallback", err)
				}
			}
			r.ContextWithFallback = true
			if err := httpmw.Check(r); err != nil {
				t.Errorf("got %v, want nil", err)
			}
		})
	}
}

// TestGinContextAsContext checks handlers that use c itself as a context, in an engine
// with ContextWithFallback.
func TestGinContextAsContext(t *testing.T) {
	t.Parallel()
	s := onGin.newSite(t)
	s.ContextWithFallback = true
	lock := httpmw.Lock(s.locker, "order", httpmw.Param("id"), httpmw.Acquire(core.TTL(2*time.Second)))
	s.POST("/again/:id", lock, func(c *gin.Context) {
		err := s.locker.Do(c, core.Key("order", c.Param("id")), func(context.Context) error { return nil })
		c.String(http.StatusOK, "%v", err)
	})
	s.POST("/lost/:id", lock, func(c *gin.Context) {
		gone := core.ErrLost
		s.store.extend.Store(&gone)
		<-c.Done()
		c.String(http.StatusOK, "%v", context.Cause(c.Request.Context()))
	})
	s.POST("/final/:id", httpmw.Idempotent(s.runs(), httpmw.AnyCaller()), func(c *gin.Context) {
		c.String(http.StatusOK, "%v", once.NotFinal(c))
	})
	if r := s.send("POST", "/again/1", ""); r.body != "<nil>" {
		t.Errorf("got %q, want the same key to re-enter", r.body)
	}
	if r := s.pay("k", "/final/1", ""); r.body != "true" {
		t.Errorf("got %q, want the run to be found", r.body)
	}
	if r := s.send("POST", "/lost/2", ""); !strings.Contains(r.body, core.ErrLost.Error()) {
		t.Errorf("got %q, want the loss", r.body)
	}
}

// TestGinContextAsContext_Default checks a handler that passes c itself to Locker.Do,
// in an engine with gin's defaults. Do does not find the lease of its own request.
func TestGinContextAsContext_Default(t *testing.T) {
	t.Parallel()
	s := onGin.newSite(t)
	s.ContextWithFallback = false
	s.POST("/:id", httpmw.Lock(s.locker, "order", httpmw.Param("id")), func(c *gin.Context) {
		key := core.Key("order", c.Param("id"))
		ran := func(ctx context.Context) error {
			err := s.locker.Do(ctx, key, func(context.Context) error { return nil }, core.Wait(0))
			if errors.Is(err, core.ErrBusy) {
				return core.ErrBusy
			}
			return err
		}
		c.String(http.StatusOK, "%v, %v, %v", ran(c), ran(c.Request.Context()), c.Done())
	})
	if r, want := s.send("POST", "/1", ""), fmt.Sprintf("%v, <nil>, <nil>", core.ErrBusy); r.body != want {
		t.Errorf("got %q for c, its request's context and c.Done, want %q", r.body, want)
	}
}

func TestMisused(t *testing.T) { onEachKey(t, testMisused) }

func testMisused(t *testing.T, mw framework) {
	t.Parallel()

	t.Run("Misused once per middleware", func(t *testing.T) {
		t.Parallel()
		var mu sync.Mutex
		var events []core.Event
		s := mw.newSite(t, core.WithObserver(observer(func(e core.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == core.Misused {
				events = append(events, e)
			}
		})))
		account := func(c *gin.Context) (string, error) { return mw.Param("account")(c) }
		for path, typo := range map[string]gin.HandlerFunc{
			"/pay/:id":    mw.Lock(s.locker, "order", mw.Param("idd")),
			"/also/:id":   mw.Lock(s.locker, "transfer", mw.Param("id"), mw.Also(mw.Join(mw.Query("a"), mw.Param("idd")))),
			"/refund/:id": mw.Idempotent(s.runs(), account, mw.CallName("refund")),
			"/other/:id":  mw.Idempotent(s.runs(), account),
		} {
			s.POST(path, typo, mustNotRun(t))
			url := strings.Replace(path, ":id", "hunter2", 1) + "?a=1"
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() { s.pay("k", url, "").problem(t, http.StatusInternalServerError) })
			}
			wg.Wait()
			mu.Lock()
			want := map[string]string{"/pay/:id": "order", "/also/:id": "transfer", "/refund/:id": "refund", "/other/:id": "http"}[path]
			if len(events) != 1 || events[0].Name != want || !strings.Contains(events[0].Err.Error(), path) || strings.Contains(events[0].Err.Error(), "hunter2") {
				t.Errorf("%s: got %v, want one event of %s", path, events, want)
			}
			events = nil
			mu.Unlock()
		}
	})

	t.Run("requests that are no misuse", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t, core.WithObserver(observer(func(e core.Event) {
			if e.Kind == core.Misused {
				t.Errorf("got %v, want no event", e)
			}
		})))
		if mw.pkg == onGin.pkg { // under net/http a Lock around all routes would be misuse
			s.Use(mw.Lock(s.locker, "order", mw.Param("id")))
		}
		s.POST("/pay/:id", mw.Lock(s.locker, "query", mw.Query("a")), mustNotRun(t))
		s.POST("/own/:id", mw.Lock(s.locker, "own", func(*gin.Context) (string, error) { return "", errors.New("no database") }), mustNotRun(t))
		s.send("POST", "/pay/1", "").problem(t, http.StatusBadRequest)
		s.send("POST", "/own/1", "").problem(t, http.StatusInternalServerError)
		if r := s.send("POST", "/nowhere", ""); r.status != http.StatusNotFound {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})
}
