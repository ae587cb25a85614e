package httpmw_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

func TestLockExcludes(t *testing.T) { onEach(t, testLockExcludes) }

func testLockExcludes(t *testing.T, mw framework) {
	t.Parallel()

	t.Run("fifty clicks on one order", func(t *testing.T) {
		t.Parallel()
		const clicks = 50
		s, inside, answered := mw.newSite(t), gauge{}, make(chan struct{}, clicks)
		s.POST("/orders/:id/pay", mw.Lock(s.locker, "order", mw.Param("id")), func(c *gin.Context) {
			inside.enter()
			defer inside.leave()
			for range clicks - 1 { // until all other requests have their responses
				within(t, "the others are answered", answered)
			}
			ok(c)
		})
		var charged, refused atomic.Int32
		var wg sync.WaitGroup
		for range clicks {
			wg.Go(func() {
				switch r := s.send("POST", "/orders/42/pay", ""); r.status {
				case http.StatusOK:
					charged.Add(1)
				case http.StatusConflict:
					refused.Add(1)
				default:
					t.Errorf("got %d %q", r.status, r.body)
				}
				answered <- struct{}{}
			})
		}
		wg.Wait()
		if charged.Load() != 1 || refused.Load() != clicks-1 || inside.total.Load() != 1 {
			t.Errorf("%d charged, %d refused, %d ran; want 1, %d, 1", charged.Load(), refused.Load(), inside.total.Load(), clicks-1)
		}
	})

	t.Run("fifty waiting requests", func(t *testing.T) {
		t.Parallel()
		const clicks = 50
		s, inside, naive := mw.newSite(t), gauge{}, 0
		lock := mw.Lock(s.locker, "order", mw.Param("id"), mw.Acquire(core.Wait(soon)))
		s.POST("/orders/:id/pay", lock, func(c *gin.Context) {
			inside.enter()
			defer inside.leave()
			n := naive
			time.Sleep(time.Millisecond)
			naive = n + 1
			ok(c)
		})
		var wg sync.WaitGroup
		for range clicks {
			wg.Go(func() {
				if r := s.send("POST", "/orders/42/pay", `{"amount":1}`); r.status != http.StatusOK {
					t.Errorf("got %d %q", r.status, r.body)
				}
			})
		}
		wg.Wait()
		if inside.most.Load() != 1 || naive != clicks {
			t.Errorf("%d at once, counted %d; want 1, %d", inside.most.Load(), naive, clicks)
		}
	})

	t.Run("two orders run side by side", func(t *testing.T) {
		t.Parallel()
		s, both := mw.newSite(t), make(chan struct{})
		s.POST("/orders/:id/pay", mw.Lock(s.locker, "order", mw.Param("id")), func(c *gin.Context) {
			select { // blocks until both handlers run
			case both <- struct{}{}:
			case <-both:
			case <-time.After(soon):
				t.Error("the other one did not come")
			}
			ok(c)
		})
		var wg sync.WaitGroup
		for _, id := range []string{"1", "2"} {
			wg.Go(func() {
				if r := s.send("POST", "/orders/"+id+"/pay", ""); r.body != "order:"+id {
					t.Errorf("got %d %q", r.status, r.body)
				}
			})
		}
		wg.Wait()
	})

	t.Run("key outside of HTTP", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/orders/:id/pay", mw.Lock(s.locker, "order", mw.Param("id")), func(c *gin.Context) {
			if s.isFree(core.Key("order", "a:b{c}%")) {
				t.Error("the key is free while the handler runs")
			}
			ok(c)
		})
		if r := s.send("POST", "/orders/a:b%7Bc%7D%25/pay", ""); r.status != http.StatusOK {
			t.Fatalf("got %d %q", r.status, r.body)
		}
		release := s.hold(core.Key("order", "a:b{c}%"))
		if r := s.send("POST", "/orders/a:b%7Bc%7D%25/pay", ""); r.status != http.StatusConflict {
			t.Errorf("got %d while the key was held, want 409", r.status)
		}
		release()
		if r := s.send("POST", "/orders/a:b%7Bc%7D%25/pay", ""); r.status != http.StatusOK {
			t.Errorf("got %d when the key was free again, want 200", r.status)
		}
	})

	t.Run("waiting request gets the lock", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.GET("/", mw.Lock(s.locker, "order", mw.Query("id"), mw.Acquire(core.Wait(soon))), ok)
		release := s.hold("order:7")
		got := make(chan reply, 1)
		go func() { got <- s.send("GET", "/?id=7", "") }()
		eventually(t, "the request asks for the lock", func() bool { return s.store.attempts.Load() > 2 })
		release()
		if r := within(t, "the request is served", got); r.body != "order:7" {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})

	t.Run("default wait is not used", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t, core.WithDefaults(core.Wait(time.Hour)))
		s.GET("/", mw.Lock(s.locker, "order", mw.Query("id")), ok)
		s.hold("order:7")
		if r := s.send("GET", "/?id=7", ""); r.status != http.StatusConflict {
			t.Errorf("got %d, want 409", r.status)
		}
	})

	t.Run("readers and a writer", func(t *testing.T) {
		t.Parallel()
		s, inside, wait := mw.newSite(t), make(chan struct{}), make(chan struct{})
		s.GET("/:id", mw.Lock(s.locker, "doc", mw.Param("id"), mw.Acquire(core.Shared())), func(c *gin.Context) {
			inside <- struct{}{}
			<-wait
			ok(c)
		})
		s.PUT("/:id", mw.Lock(s.locker, "doc", mw.Param("id")), ok)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { s.send("GET", "/9", "") })
		}
		for range 2 {
			within(t, "both readers are inside", inside)
		}
		if r := s.send("PUT", "/9", ""); r.status != http.StatusConflict {
			t.Errorf("the writer got %d, want 409", r.status)
		}
		close(wait)
		wg.Wait()
	})
}

func TestLockAlso(t *testing.T) { onEach(t, testLockAlso) }

func testLockAlso(t *testing.T, mw framework) {
	t.Parallel()

	t.Run("transfers in both directions", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		var a, b gauge
		lock := mw.Lock(s.locker, "account", mw.Query("from"),
			mw.Also(mw.Query("to")), mw.Acquire(core.Wait(soon)))
		s.POST("/transfer", lock, func(c *gin.Context) {
			for _, g := range []*gauge{&a, &b} {
				g.enter()
				defer g.leave()
			}
			time.Sleep(time.Millisecond)
			ok(c)
		})
		var wg sync.WaitGroup
		for i := range 40 {
			path := "/transfer?from=a&to=b"
			if i%2 == 1 {
				path = "/transfer?from=b&to=a"
			}
			wg.Go(func() {
				if r := s.send("POST", path, ""); r.status != http.StatusOK {
					t.Errorf("%s: got %d %q", path, r.status, r.body)
				}
			})
		}
		wg.Wait()
		if a.most.Load() != 1 || b.most.Load() != 1 {
			t.Errorf("%d and %d at once, want 1 and 1", a.most.Load(), b.most.Load())
		}
	})

	t.Run("keys of Also", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		var want []string
		lock := mw.Lock(s.locker, "account", mw.Query("from"), mw.Also(mw.Query("to")), mw.Also(mw.Query("fee")))
		s.POST("/transfer", lock, func(c *gin.Context) {
			for _, key := range want {
				if _, held := core.LeaseOf(c.Request.Context(), key); !held || s.isFree(key) {
					t.Errorf("%s is not locked", key)
				}
			}
			ok(c)
		})
		want = []string{"account:a", "account:b", "account:c"}
		if r := s.send("POST", "/transfer?from=b&to=a&fee=c", ""); r.body != "account:b" {
			t.Errorf("got %d %q", r.status, r.body)
		}
		want = []string{"account:a"}
		if r := s.send("POST", "/transfer?from=a&to=a&fee=a", ""); r.body != "account:a" {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})

	t.Run("busy or missing key locks none", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/transfer", mw.Lock(s.locker, "account", mw.Query("from"), mw.Also(mw.Query("to"))), ok)
		s.hold("account:b")
		for _, path := range []string{"/transfer?from=a&to=b", "/transfer?from=b&to=a"} {
			if r := s.send("POST", path, ""); r.status != http.StatusConflict {
				t.Errorf("%s: got %d, want 409", path, r.status)
			}
		}
		if r := s.send("POST", "/transfer?from=a", ""); r.status != http.StatusBadRequest {
			t.Errorf("got %d, want 400", r.status)
		}
		if !s.isFree("account:a") {
			t.Error("the first account is still locked")
		}
	})
}
