package httpmw_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
)

// TestLateAnswer checks runs that continue after Locker.Close, or after the loss of
// their lease. It covers hazard 58.
func TestLateAnswer(t *testing.T) { onEachKey(t, testLateAnswer) }

func testLateAnswer(t *testing.T, mw framework) {
	t.Parallel()
	for policy, opts := range map[string][]once.Option{"": nil, " with AtMostOnce": {once.AtMostOnce()}} {
		serve := func(t *testing.T, meanwhile func(s *site), seen ...core.Option) (first, next *site) {
			first, next = mw.newSite(t, seen...), mw.newSite(t)
			second, err := core.New(first.store)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = second.Close(context.Background()) })
			next.locker = second
			first.POST("/", mw.Idempotent(first.runs(opts...), mw.AnyCaller()), func(c *gin.Context) {
				end, cancel := context.WithCancel(context.Background())
				cancel()
				if err := first.locker.Close(end); err == nil {
					t.Error("it was closed while a run goes on")
				}
				meanwhile(first)
				c.String(http.StatusCreated, "receipt")
			})
			next.POST("/", mw.Idempotent(next.runs(opts...), mw.AnyCaller()), func(c *gin.Context) {
				n, _ := once.AttemptFromContext(c.Request.Context())
				c.String(http.StatusOK, "attempt %d", n)
			})
			return first, next
		}

		t.Run("replay of a run after Close"+policy, func(t *testing.T) {
			t.Parallel()
			first, next := serve(t, func(*site) {})
			if r := first.pay("k", "/", ""); r.status != http.StatusCreated || r.isReplay() {
				t.Errorf("got %d %q", r.status, r.body)
			}
			if r := next.pay("k", "/", ""); r.status != http.StatusCreated || r.body != "receipt" || !r.isReplay() {
				t.Errorf("got %d %q, a replay is %v", r.status, r.body, r.isReplay())
			}
		})

		t.Run("response not stored after Close"+policy, func(t *testing.T) {
			t.Parallel()
			errs := make(chan error, 10)
			first, _ := serve(t, func(s *site) {
				unavailable := core.ErrUnavailable
				s.store.release.Store(&unavailable)
			}, core.WithObserver(observer(func(e core.Event) {
				if e.Kind == core.CleanedUp && e.Err != nil {
					errs <- e.Err
				}
			})))
			if r := first.pay("k", "/", ""); r.status != http.StatusCreated || r.body != "receipt" {
				t.Errorf("got %d %q", r.status, r.body)
			}
			if err := within(t, "the observer is notified", errs); !errors.Is(err, core.ErrUnavailable) {
				t.Errorf("got the error %v", err)
			}
			first.store.release.Store(nil)
		})
	}

	t.Run("store away beyond the TTL", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/", mw.Idempotent(s.runs(once.Acquire(core.TTL(200*time.Millisecond))), mw.AnyCaller()), func(c *gin.Context) {
			unavailable := core.ErrUnavailable
			s.store.extend.Store(&unavailable)
			<-c.Request.Context().Done()
			if cause := context.Cause(c.Request.Context()); !errors.Is(cause, core.ErrLost) {
				t.Errorf("it ended with %v", cause)
			}
			time.Sleep(200 * time.Millisecond)
			s.store.extend.Store(nil)
			c.String(http.StatusCreated, "receipt")
		})
		for _, replay := range []bool{false, true} {
			if r := s.pay("k", "/", ""); r.status != http.StatusCreated || r.body != "receipt" || r.isReplay() != replay {
				t.Errorf("got %d %q, a replay is %v", r.status, r.body, r.isReplay())
			}
		}
	})
}
