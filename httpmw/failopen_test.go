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
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// opened counts core.RanUnlocked.
type opened struct{ atomic.Int32 }

func (o *opened) Observe(_ context.Context, e core.Event) {
	if e.Kind == core.RanUnlocked && e.Name == "order" && errors.Is(e.Err, core.ErrUnavailable) {
		o.Add(1)
	}
}

func (o *opened) want(t *testing.T, n int32) {
	t.Helper()
	if got := o.Load(); got != n {
		t.Errorf("%d are counted, want %d", got, n)
	}
}

func fill(c *gin.Context) {
	key, unlocked := "no lease", core.Unlocked(c.Request.Context())
	if lease, ok := core.LeaseFromContext(c.Request.Context()); ok {
		key = lease.Key()
	}
	c.String(http.StatusOK, "%s, unlocked: %v", key, unlocked)
}

func (r reply) is(t *testing.T, body string) {
	t.Helper()
	if r.status != http.StatusOK || r.body != body {
		t.Errorf("got %d %q, want %q", r.status, r.body, body)
	}
}

func (r reply) refused(t *testing.T, status int, kind string) {
	t.Helper()
	if p := r.problem(t, status); p["type"] != base+kind {
		t.Errorf("type is %v, want %s", p["type"], kind)
	}
}

func TestFailOpen(t *testing.T) { onEachKey(t, testFailOpen) }

func testFailOpen(t *testing.T, mw framework) {
	t.Parallel()
	down := fmt.Errorf("dial 10.0.0.7: %w", core.ErrUnavailable)

	t.Run("store down runs unlocked", func(t *testing.T) {
		t.Parallel()
		var n opened
		s, pushed := mw.newSite(t, core.WithObserver(&n)), errorsOf{}
		above := func(c *gin.Context) {
			before := c.Request
			c.Next()
			if c.Request != before || core.Unlocked(c.Request.Context()) || c.Request.PostForm.Get("note") != "hi" {
				t.Error("above the middleware the request is another one, or its form is missing")
			}
		}
		s.POST("/:id", pushed.collect, above, mw.Lock(s.locker, "order", mw.Param("id"), mw.FailOpen()), func(c *gin.Context) {
			_ = c.PostForm("note")
			fill(c)
		})
		post := func() reply {
			return s.send("POST", "/5", "note=hi", "Content-Type", "application/x-www-form-urlencoded")
		}
		post().is(t, "order:5, unlocked: false")
		s.storeFails(down)
		post().is(t, "no lease, unlocked: true")
		post().is(t, "no lease, unlocked: true")
		n.want(t, 2)
		s.store.acquire.Store(nil)
		post().is(t, "order:5, unlocked: false")
		n.want(t, 2)
		pushed.none(t)
	})

	t.Run("other failures refuse", func(t *testing.T) {
		t.Parallel()
		var n opened
		s := mw.newSite(t, core.WithObserver(&n))
		s.GET("/", mw.Lock(s.locker, "order", mw.Query("id"), mw.FailOpen()), mustNotRun(t))
		s.GET("/waits", mw.Lock(s.locker, "order", mw.Query("id"), mw.FailOpen(), mw.Acquire(core.Wait(50*time.Millisecond))), mustNotRun(t))
		release := s.hold("order:5")
		s.send("GET", "/?id=5", "").refused(t, http.StatusConflict, "lock-busy")
		s.send("GET", "/waits?id=5", "").refused(t, http.StatusConflict, "lock-busy")
		release()
		s.storeFails(down)
		s.send("GET", "/", "").refused(t, http.StatusBadRequest, "key-invalid")
		s.send("GET", "/?id="+strings.Repeat("5", 600), "").refused(t, http.StatusBadRequest, "key-invalid")
		for _, err := range []error{core.ErrUnsupported, core.ErrInvalid} {
			s.storeFails(err)
			s.send("GET", "/?id=5", "").refused(t, http.StatusInternalServerError, "lock-failed")
		}
		s.storeFails(down)
		if err := s.locker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.send("GET", "/?id=5", "").refused(t, http.StatusServiceUnavailable, "lock-unavailable")
		n.want(t, 0)
	})

	t.Run("lost lease of its key refuses", func(t *testing.T) {
		t.Parallel()
		var n opened
		s, gone := mw.newSite(t, core.WithObserver(&n)), core.ErrLost
		loses := func(c *gin.Context) {
			lease, _ := core.LeaseFromContext(c.Request.Context())
			s.store.extend.Store(&gone)
			if err := lease.Extend(c.Request.Context(), time.Minute); !errors.Is(err, core.ErrLost) {
				t.Errorf("got %v", err)
			}
			c.Request = c.Request.WithContext(context.WithoutCancel(c.Request.Context()))
		}
		s.GET("/:id", mw.Lock(s.locker, "order", mw.Param("id")), loses, mw.Lock(s.locker, "order", mw.Param("id"), mw.FailOpen()), mustNotRun(t))
		s.send("GET", "/5", "").refused(t, http.StatusServiceUnavailable, "lock-unavailable")
		n.want(t, 0)
	})

	t.Run("Idempotent inside and outside", func(t *testing.T) {
		t.Parallel()
		var n opened
		s, caches := mw.newSite(t, core.WithObserver(&n)), mw.newSite(t) // two stores
		open, answered := mw.Lock(s.locker, "order", mw.Param("id"), mw.FailOpen()), caches.runs()
		s.POST("/inside/:id", open, mw.Idempotent(s.runs(), mw.AnyCaller()), mustNotRun(t))
		s.POST("/outside/:id", mw.Idempotent(answered, mw.AnyCaller()), open, fill)
		s.storeFails(down)
		s.pay("a", "/inside/5", "").refused(t, http.StatusServiceUnavailable, "idempotency-unavailable")
		n.want(t, 1)
		for _, replay := range []bool{false, true} {
			r := s.pay("b", "/outside/5", "")
			r.is(t, "no lease, unlocked: true")
			if r.isReplay() != replay {
				t.Errorf("replayed: %v", r.isReplay())
			}
		}
		n.want(t, 2)
	})

	t.Run("panic without the lock", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		above := func(c *gin.Context) {
			defer func() {
				if core.Unlocked(c.Request.Context()) {
					t.Error("above the middleware the request is another one")
				}
			}()
			c.Next()
		}
		s.GET("/:id", gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) }), above,
			mw.Lock(s.locker, "order", mw.Param("id"), mw.FailOpen()), func(*gin.Context) { panic("the cache is on fire") })
		s.storeFails(down)
		if r := s.send("GET", "/5", ""); r.status != http.StatusInternalServerError {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})

	t.Run("without the option", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.GET("/:id", mw.Lock(s.locker, "order", mw.Param("id")), mustNotRun(t))
		s.storeFails(down)
		s.send("GET", "/5", "").refused(t, http.StatusServiceUnavailable, "lock-unavailable")
	})
}

// TestFailOpenOnRedis checks FailOpen with a Redis that is frozen or killed, with lost
// replies and with late requests.
func TestFailOpenOnRedis(t *testing.T) { onEach(t, testFailOpenOnRedis) }

func testFailOpenOnRedis(t *testing.T, mw framework) {
	t.Parallel()
	const locked, unlocked = "order:5, unlocked: false", "no lease, unlocked: true"

	for name, c := range map[string]struct{ fail, mend func(*testserver.Redis) }{
		"frozen": {(*testserver.Redis).Pause, (*testserver.Redis).Resume}, // hazard 23
		"killed": {(*testserver.Redis).Kill, func(s *testserver.Redis) { s.Restart() }},
	} {
		t.Run("Redis is "+name, func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t)
			var n opened
			s, db := mw.newReplica(t, server, core.WithObserver(&n)), testclient.Redis(t, server.Addr)
			s.GET("/:id", mw.Lock(s.locker, "order", mw.Param("id"), mw.FailOpen()), fill)
			s.send("GET", "/5", "").is(t, locked)
			c.fail(server)
			answers := make(chan reply, 3)
			for _, path := range []string{"/5", "/6", "/7"} {
				go func() { answers <- s.send("GET", path, "") }()
			}
			for range cap(answers) {
				within(t, "a request is answered", answers).is(t, unlocked)
			}
			n.want(t, 3)
			c.mend(server)
			// A claim that arrived late is released. It cannot have expired, because
			// its TTL is longer than this wait.
			eventually(t, "handlers are locked again", func() bool { return s.send("GET", "/5", "").body == locked })
			eventually(t, "no key is held", func() bool { return holds(t, db, "order:*") == 0 })
		})
	}

	for name, action := range map[string]testserver.Action{
		"lost grant is released":   testserver.CloseReply,
		"late claim is cleaned up": testserver.HoldRequest,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t)
			proxy := testserver.NewRedisProxy(t, server.Addr)
			var n opened
			s, other := mw.replicaAt(t, proxy.Addr, core.WithObserver(&n)), mw.newReplica(t, server)
			s.GET("/:id", mw.Lock(s.locker, "order", mw.Param("id"), mw.FailOpen()), fill)
			other.GET("/:id", mw.Lock(other.locker, "order", mw.Param("id"), mw.FailOpen()), fill)
			releases := testserver.Match{Script: "release"}
			// From now on the server knows the scripts, so an acquire is one request.
			s.send("GET", "/5", "").is(t, locked)
			before := proxy.Count(releases)
			fault := proxy.Inject(testserver.Match{Script: "acquire", Times: -1}, action)
			s.send("GET", "/5", "").is(t, unlocked)
			n.want(t, 1)
			fault.Await(t)
			fault.Deliver()
			fault.AwaitAnswer(t) // the server has executed the acquire
			proxy.Remove(fault)
			eventually(t, "another replica gets the lock", func() bool {
				r := other.send("GET", "/5", "")
				// The lock is not free yet, and FailOpen does not apply to a busy lock.
				if r.status == http.StatusConflict {
					return false
				}
				r.is(t, locked)
				return true
			})
			if proxy.Count(releases) == before {
				t.Error("nothing was released")
			}
			s.send("GET", "/5", "").is(t, locked)
			n.want(t, 1)
		})
	}

	t.Run("lock of another replica", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		s, other := mw.newReplica(t, server), mw.newReplica(t, server)
		s.GET("/:id", mw.Lock(s.locker, "order", mw.Param("id"), mw.FailOpen()), mustNotRun(t))
		other.hold("order:5")
		s.send("GET", "/5", "").refused(t, http.StatusConflict, "lock-busy")
	})
}
