package httpmw_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
)

func counted(runs *atomic.Int32) gin.HandlerFunc {
	return func(c *gin.Context) { c.String(http.StatusCreated, "run %d", runs.Add(1)) }
}

func (r reply) isReplay() bool { return r.header.Get("Idempotent-Replayed") == "true" }

func TestIdempotent(t *testing.T) { onEachKey(t, testIdempotent) }

func testIdempotent(t *testing.T, mw framework) {
	t.Parallel()

	t.Run("duplicate gets the first response", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		s.POST("/:id", mw.Idempotent(s.runs(), mw.AnyCaller()), counted(&runs))
		first := s.pay("k", "/5", `{"amount":5}`)
		if first.status != http.StatusCreated || first.body != "run 1" || first.isReplay() {
			t.Errorf("got %d %q %v", first.status, first.body, first.header)
		}
		for range 3 {
			r := s.pay("k", "/5", `{"amount":5}`)
			if r.status != first.status || r.body != first.body || !r.isReplay() || r.header.Get("Content-Type") != first.header.Get("Content-Type") {
				t.Errorf("got %d %q %v", r.status, r.body, r.header)
			}
		}
		if r := s.pay("another", "/5", `{"amount":5}`); r.body != "run 2" {
			t.Errorf("under another key: %d %q", r.status, r.body)
		}
	})

	t.Run("requests to the store", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), counted(&runs))
		for i, want := range []int32{2, 1, 1} {
			before := s.store.attempts.Load() + s.store.releases.Load()
			s.pay("k", "/", "body")
			if calls := s.store.attempts.Load() + s.store.releases.Load() - before; calls != want {
				t.Errorf("request %d asked the store %d times, want %d", i+1, calls, want)
			}
		}
	})

	t.Run("fifty duplicates at once", func(t *testing.T) {
		t.Parallel()
		for name, o := range map[string][]once.Option{
			"at once": nil, "with a wait": {once.Acquire(core.Wait(soon))},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				fifty(t, o != nil, o, mw.newSite(t))
			})
		}
	})

	t.Run("scope is part of the key", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		scope := mw.Join(mw.Header("X-Tenant"), mw.Header("X-User"))
		s.POST("/", mw.Idempotent(s.runs(), scope), counted(&runs))
		// These callers must all have different scopes. Some of them are equal when
		// their parts are joined, with or without a ":".
		callers := [][2]string{{"a", "b"}, {"ab", "c"}, {"a", "bc"}, {"a:b", "c"}, {"a", "b:c"}, {"a%3Ab", "c"}, {"b", "a"}, {"ä", "{}"}}
		for i, caller := range callers {
			r := s.pay("k", "/", "body", "X-Tenant", caller[0], "X-User", caller[1])
			if r.body != fmt.Sprintf("run %d", i+1) || r.isReplay() {
				t.Errorf("%v got %d %q", caller, r.status, r.body)
			}
		}
		for i, caller := range callers {
			r := s.pay("k", "/", "body", "X-Tenant", caller[0], "X-User", caller[1])
			if r.body != fmt.Sprintf("run %d", i+1) || !r.isReplay() {
				t.Errorf("again, %v got %d %q", caller, r.status, r.body)
			}
		}
		// A key must not lead into another scope either.
		for _, key := range []string{"b:k", "a:b:k", "%3Ak", "../k"} {
			if r := s.pay(key, "/", "body", "X-Tenant", "a", "X-User", "b"); r.isReplay() {
				t.Errorf("key %q got %d %q", key, r.status, r.body)
			}
		}
	})

	t.Run("an unknown caller is refused", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/", mw.Idempotent(s.runs(), mw.Header("X-User")), mustNotRun(t))
		s.POST("/empty", mw.Idempotent(s.runs(), func(*gin.Context) (string, error) { return "", nil }), mustNotRun(t))
		s.POST("/long", mw.Idempotent(s.runs(), func(*gin.Context) (string, error) { return strings.Repeat("%", 400), nil }), mustNotRun(t))
		s.POST("/broken", mw.Idempotent(s.runs(), func(*gin.Context) (string, error) { return "", context.DeadlineExceeded }), mustNotRun(t))
		for path, detail := range map[string]string{"/": "X-User\" is missing", "/empty": "Scope is empty.", "/long": "Scope is too long, with escapes 512"} {
			p := s.pay("k", path, "").problem(t, http.StatusBadRequest)
			if p["type"] != base+"idempotency-key-invalid" || !strings.Contains(fmt.Sprint(p["detail"]), detail) {
				t.Errorf("%s: got %v", path, p)
			}
		}
		if p := s.pay("k", "/broken", "").problem(t, http.StatusInternalServerError); p["type"] != base+"idempotency-failed" {
			t.Errorf("got %v", p)
		}
	})

	t.Run("methods that are not covered", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		s.Any("/", mw.Idempotent(s.runs(), mw.AnyCaller()), counted(&runs))
		s.Any("/put", mw.Idempotent(s.runs(), mw.AnyCaller(), mw.Methods("PUT")), counted(&runs))
		before := s.store.attempts.Load()
		for _, request := range []string{"GET /", "HEAD /", "OPTIONS /", "PUT /", "DELETE /", "POST /put", "PATCH /put"} {
			method, path, _ := strings.Cut(request, " ")
			for range 2 {
				if r := s.send(method, path, "", "Idempotency-Key", "k"); r.status != http.StatusCreated || r.isReplay() {
					t.Errorf("%s: got %d %q", request, r.status, r.body)
				}
			}
		}
		if n := s.store.attempts.Load() - before; n != 0 {
			t.Errorf("the store was asked %d times", n)
		}
		for i, request := range []string{"POST /", "PATCH /", "PUT /put"} {
			method, path, _ := strings.Cut(request, " ")
			key := fmt.Sprintf("k%d", i)
			s.send(method, path, "", "Idempotency-Key", key)
			if r := s.send(method, path, "", "Idempotency-Key", key); !r.isReplay() {
				t.Errorf("%s: got %d %q", request, r.status, r.body)
			}
		}
	})

	t.Run("Skip makes the key optional", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		without := func(c *gin.Context) bool { return c.GetHeader(mw.header) == "" }
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller(), mw.Skip(without)), counted(&runs))
		for i := range 2 {
			if r := s.send("POST", "/", ""); r.body != fmt.Sprintf("run %d", i+1) {
				t.Errorf("got %d %q", r.status, r.body)
			}
		}
		for range 2 {
			if r := s.pay("k", "/", ""); r.body != "run 3" {
				t.Errorf("got %d %q", r.status, r.body)
			}
		}
	})

	t.Run("retention of a response", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		s.POST("/", mw.Idempotent(s.runs(once.Retain(50*time.Millisecond)), mw.AnyCaller()), counted(&runs))
		s.pay("k", "/", "")
		eventually(t, "Key is a new one", func() bool { return s.pay("k", "/", "").body == "run 2" })
	})

	t.Run("handlers of no route", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.NoRoute(mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) { c.AbortWithStatus(http.StatusNotFound) })
		for _, replay := range []bool{false, true} {
			if r := s.pay("k", "/nowhere", ""); r.status != http.StatusNotFound || r.body != "" || r.isReplay() != replay {
				t.Errorf("got %d %q", r.status, r.body)
			}
		}
	})

	t.Run("request without a route", func(t *testing.T) {
		mw.ofGin(t)
		t.Parallel()
		s := mw.newSite(t)
		s.Use(mw.Idempotent(s.runs(), mw.AnyCaller()))
		for _, header := range [][]string{nil, {"Idempotency-Key", "k"}, {"Idempotency-Key", "k"}} {
			if r := s.send("POST", "/nowhere", "", header...); r.status != http.StatusNotFound || r.body != "404 page not found" {
				t.Errorf("%v: got %d %q", header, r.status, r.body)
			}
		}
	})
}

// fifty sends the same request fifty times at once, distributed over the sites.
func fifty(t *testing.T, waits bool, opts []once.Option, sites ...*site) {
	t.Helper()
	const requests = 50
	var ran, first, replayed, refused atomic.Int32
	inside, answered := make(chan struct{}), make(chan struct{}, requests)
	for _, s := range sites {
		s.POST("/fifty", s.mw.Idempotent(s.runs(opts...), s.mw.AnyCaller()), func(c *gin.Context) {
			if ran.Add(1) == 1 {
				close(inside)
			}
			for range requests / 2 { // until half of the requests were refused
				if !waits {
					within(t, "the others are answered", answered)
				}
			}
			c.String(http.StatusCreated, "receipt")
		})
	}
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() {
			r := sites[i%len(sites)].pay("k", "/fifty", "body")
			switch {
			case r.status == http.StatusConflict:
				refused.Add(1)
				if p := r.problem(t, http.StatusConflict); p["type"] != base+"idempotency-in-progress" || r.header.Get("Retry-After") != "1" {
					t.Errorf("got %v, Retry-After %q", p, r.header.Get("Retry-After"))
				}
			case r.status != http.StatusCreated || r.body != "receipt":
				t.Errorf("got %d %q", r.status, r.body)
			case r.isReplay():
				replayed.Add(1)
			default:
				first.Add(1)
			}
			answered <- struct{}{}
		})
	}
	wg.Wait()
	if ran.Load() != 1 || first.Load() != 1 || replayed.Load()+refused.Load() != requests-1 {
		t.Errorf("%d ran, %d first answers, %d replays, %d refused; want 1, 1, and %d of the two", ran.Load(), first.Load(), replayed.Load(), refused.Load(), requests-1)
	}
	if waits && refused.Load() > 0 || !waits && refused.Load() < requests/2 {
		t.Errorf("%d were refused", refused.Load())
	}
	within(t, "one ran", inside)
}
