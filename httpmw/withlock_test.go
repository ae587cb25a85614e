package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// TestLockAndIdempotent mounts a Lock and an Idempotent on one route, in both orders.
func TestLockAndIdempotent(t *testing.T) { onEachKey(t, testLockAndIdempotent) }

func testLockAndIdempotent(t *testing.T, mw framework) {
	t.Parallel()
	for _, order := range []string{"Idempotent outside", "Lock outside"} {
		idempotentOutside := order == "Idempotent outside"
		mount := func(s *site, handler gin.HandlerFunc) {
			lock := mw.Lock(s.locker, "order", mw.JSON("order"))
			idempotent := mw.Idempotent(s.runs(), mw.Header("X-User"))
			if idempotentOutside {
				s.POST("/", idempotent, lock, handler)
			} else {
				s.POST("/", lock, idempotent, handler)
			}
		}
		pay := func(s *site, user, key string) reply {
			s.t.Helper()
			return s.pay(key, "/", `{"order":7}`, "X-User", user)
		}

		t.Run(order+" lease and attempt and body", func(t *testing.T) {
			t.Parallel()
			s, runs := mw.newSite(t), atomic.Int32{}
			mount(s, func(c *gin.Context) {
				lease, found := core.LeaseFromContext(c.Request.Context())
				if !found || lease.Key() != "order:7" || lease.Token() == 0 || s.isFree("order:7") {
					t.Error("the order is not locked")
				}
				var in struct{ Order int }
				if err := c.ShouldBindJSON(&in); err != nil || in.Order != 7 || attempt(t, c) != 1 {
					t.Errorf("read %v, %v", in, err)
				}
				counted(&runs)(c)
			})
			first, again := pay(s, "ann", "k"), pay(s, "ann", "k")
			if first.body != "run 1" || again.body != "run 1" || !again.isReplay() || !s.isFree("order:7") {
				t.Errorf("got %d %q, then %d %q", first.status, first.body, again.status, again.body)
			}
			if r := pay(s, "bob", "k"); r.body != "run 2" || r.isReplay() {
				t.Errorf("another caller got %d %q", r.status, r.body)
			}
			s.pay("k", "/", `{"order":8}`, "X-User", "ann").problem(t, http.StatusUnprocessableEntity)
			s.pay("k2", "/", `{}`, "X-User", "ann").problem(t, http.StatusBadRequest)
			s.pay("", "/", `{"order":7}`, "X-User", "ann").problem(t, http.StatusBadRequest)
		})

		t.Run(order+" busy lock is not stored", func(t *testing.T) {
			t.Parallel()
			s, runs := mw.newSite(t), atomic.Int32{}
			mount(s, func(c *gin.Context) {
				if n := attempt(t, c); n != 1 {
					t.Errorf("attempt %d, want 1", n)
				}
				counted(&runs)(c)
			})
			release := s.hold("order:7")
			if p := pay(s, "ann", "k").problem(t, http.StatusConflict); p["type"] != base+"lock-busy" {
				t.Errorf("got %v", p)
			}
			release()
			for _, replay := range []bool{false, true} {
				if r := pay(s, "ann", "k"); r.body != "run 1" || r.isReplay() != replay {
					t.Errorf("got %d %q", r.status, r.body)
				}
			}
			// A replay needs no lock, unless the Lock is the outer middleware.
			s.hold("order:7")
			r := pay(s, "ann", "k")
			if idempotentOutside && !r.isReplay() || !idempotentOutside && r.status != http.StatusConflict {
				t.Errorf("under a lock held elsewhere: got %d %q", r.status, r.body)
			}
		})

		t.Run(order+" many requests under many keys", func(t *testing.T) {
			t.Parallel()
			const keys, tries = 5, 4
			s, inside := mw.newSite(t), gauge{}
			mount(s, func(c *gin.Context) {
				inside.enter()
				defer inside.leave()
				c.String(http.StatusOK, "receipt of %s", c.GetHeader(mw.header))
			})
			var wg sync.WaitGroup
			for i := range keys * tries {
				key := fmt.Sprintf("k%d", i%keys)
				wg.Go(func() {
					eventually(t, "there is an answer", func() bool {
						r := pay(s, "ann", key)
						if r.status == http.StatusOK && r.body != "receipt of "+key || r.status != http.StatusOK && r.status != http.StatusConflict {
							t.Errorf("%s got %d %q", key, r.status, r.body)
						}
						return r.status != http.StatusConflict
					})
				})
			}
			wg.Wait()
			if inside.most.Load() != 1 || inside.total.Load() != keys {
				t.Errorf("%d ran, %d at once; want %d, 1", inside.total.Load(), inside.most.Load(), keys)
			}
		})
	}

	t.Run("detached handler loses outer lock", func(t *testing.T) {
		t.Parallel()
		s, elsewhere := mw.newSite(t), mw.newSite(t)
		gone := core.ErrLost
		lock := mw.Lock(elsewhere.locker, "order", mw.Param("id"), mw.Acquire(core.TTL(2*time.Second)))
		s.POST("/:id", lock, mw.Idempotent(s.runs(), mw.AnyCaller(), mw.Detached()), func(c *gin.Context) {
			elsewhere.store.extend.Store(&gone)
			within(t, "the handler's context ends", c.Request.Context().Done())
			if cause := context.Cause(c.Request.Context()); !errors.Is(cause, core.ErrLost) {
				t.Errorf("the cause is %v", cause)
			}
			c.String(http.StatusOK, "paid")
		})
		if r := s.pay("k", "/5", ""); r.body != "paid" {
			t.Errorf("got %d %q", r.status, r.body)
		}
	})
}
