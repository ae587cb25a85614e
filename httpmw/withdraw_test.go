package httpmw_test

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core/once"
)

// TestWithdraw checks that a handler that has done nothing leaves its key free, even
// for a corrected request.
func TestWithdraw(t *testing.T) { onEachKey(t, testWithdraw) }

func testWithdraw(t *testing.T, mw framework) {
	t.Parallel()
	notValid := once.Withdraw(errors.New("amount missing"))
	for _, c := range []struct {
		name   string
		err    error
		status int
		free   bool
	}{
		{"not valid", notValid, http.StatusUnprocessableEntity, true},
		{"wrapped", fmt.Errorf("pay: %w", notValid), http.StatusBadRequest, true},
		{"down before anything was done", notValid, http.StatusServiceUnavailable, true},
		{"an error without the mark", errors.New("amount missing"), http.StatusUnprocessableEntity, false},
		{"not known", errors.Join(notValid, once.ErrIndeterminate), http.StatusUnprocessableEntity, false},
		{"marked and done", notValid, http.StatusCreated, false},
	} {
		for _, opts := range [][]once.Option{nil, {once.AtMostOnce()}} {
			t.Run(fmt.Sprintf("%s %d options", c.name, len(opts)), func(t *testing.T) {
				t.Parallel()
				s, runs := mw.newSite(t), atomic.Int32{}
				other := func(*gin.Context) (string, error) { return "other", nil }
				s.POST("/", mw.Idempotent(s.runs(opts...), other), mw.Idempotent(s.runs(opts...), mw.AnyCaller()), func(gc *gin.Context) {
					if runs.Add(1) > 1 {
						gc.String(http.StatusCreated, "paid, attempt %d", attempt(t, gc))
						return
					}
					_ = gc.Error(c.err)
					gc.String(c.status, "first")
				})
				if r := s.pay("k", "/", "first"); r.status != c.status || r.body != "first" {
					t.Errorf("got %d %q", r.status, r.body)
				}
				r := s.pay("k", "/", "mended")
				if !c.free {
					r.problem(t, http.StatusUnprocessableEntity)
					return
				}
				if r.body != "paid, attempt 1" {
					t.Errorf("got %d %q", r.status, r.body)
				}
				s.pay("k", "/", "first").problem(t, http.StatusUnprocessableEntity)
			})
		}
	}
}
