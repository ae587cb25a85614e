package httpmw_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core/once"
)

// busyTwice is a handler that always responds with 200, and reports a failure in its
// first two responses.
func busyTwice(runs *atomic.Int32) gin.HandlerFunc {
	return func(c *gin.Context) {
		if n := runs.Add(1); n > 2 {
			c.String(http.StatusOK, `{"code":0}`)
			return
		}
		c.String(http.StatusOK, `{"code":50301}`)
		if !once.NotFinal(c.Request.Context()) {
			c.String(http.StatusOK, "no run")
		}
	}
}

func TestNotFinal(t *testing.T) { onEachKey(t, testNotFinal) }

func testNotFinal(t *testing.T, mw framework) {
	t.Parallel()
	wantRuns := func(t *testing.T, s *site, bodies ...string) {
		t.Helper()
		for i, want := range bodies {
			r := s.pay("k", "/5", "{}")
			if r.status != http.StatusOK || r.body != want || r.isReplay() != (i == 3) {
				t.Errorf("request %d: got %d %q, replay %v; want %q", i+1, r.status, r.body, r.isReplay(), want)
			}
		}
	}
	busy, paid := `{"code":50301}`, `{"code":0}`

	t.Run("run again", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		s.POST("/:id", mw.Idempotent(s.runs(once.AtMostOnce()), mw.AnyCaller()), busyTwice(&runs))
		wantRuns(t, s, busy, busy)
		s.pay("k", "/5", "other").problem(t, http.StatusUnprocessableEntity)
		wantRuns(t, s, paid)
		if r := s.pay("k", "/5", "{}"); r.body != paid || !r.isReplay() {
			t.Errorf("got %q, replay %v; want a replay", r.body, r.isReplay())
		}
	})
	t.Run("Lock inside and Detached", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		s.POST("/:id", mw.Idempotent(s.runs(), mw.AnyCaller(), mw.Detached()), mw.Lock(s.locker, "order", mw.Param("id")), busyTwice(&runs))
		wantRuns(t, s, busy, busy, paid, paid)
	})
	t.Run("Idempotent inside another", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		outer := func(*gin.Context) (string, error) { return "outer", nil }
		s.POST("/:id", mw.Idempotent(s.runs(), outer), mw.Idempotent(s.runs(), mw.AnyCaller()), busyTwice(&runs))
		wantRuns(t, s, busy, busy, paid, paid)
	})
	t.Run("no Idempotent", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/:id", mw.Lock(s.locker, "order", mw.Param("id")), func(c *gin.Context) {
			c.String(http.StatusOK, "%v", once.NotFinal(c.Request.Context()))
		})
		wantRuns(t, s, "false")
	})
	t.Run("response over the limit", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		s.POST("/:id", mw.Idempotent(s.runs(), mw.AnyCaller(), mw.AnswerLimit(4)), busyTwice(&runs))
		wantRuns(t, s, busy, busy, paid)
		s.pay("k", "/5", "{}").problem(t, http.StatusGone)
	})
	t.Run("beside ErrIndeterminate", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		s.POST("/:id", mw.Idempotent(s.runs(once.AtMostOnce()), mw.AnyCaller()), func(c *gin.Context) {
			once.NotFinal(c.Request.Context())
			_ = c.Error(once.ErrIndeterminate)
			c.String(http.StatusOK, busy)
		})
		wantRuns(t, s, busy)
		if p := s.pay("k", "/5", "{}").problem(t, http.StatusConflict); !strings.HasSuffix(p["type"].(string), "idempotency-indeterminate") {
			t.Errorf("got %v, want idempotency-indeterminate", p["type"])
		}
	})
}
