package frameworks_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw/internal/mounted"
	"github.com/lockkit/lockkit/httpmw/stdmw"
)

func TestEcho5(t *testing.T) {
	mounted.Run(t, func(routes ...mounted.Route) http.Handler {
		e := echo.New()
		for _, r := range routes {
			var around []echo.MiddlewareFunc
			for _, middleware := range r.Around {
				around = append(around, echo.WrapMiddleware(middleware))
			}
			path := strings.NewReplacer("{", ":", "}", "").Replace(r.Path)
			e.Add(r.Method, path, echo.WrapHandler(r.Handler), around...)
		}
		return e
	})
}

func TestEcho5Errors(t *testing.T) {
	t.Parallel()
	locks, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	runs, err := once.New(locks)
	if err != nil {
		t.Fatal(err)
	}
	e, ran := echo.New(), 0
	e.HTTPErrorHandler = func(c *echo.Context, err error) { _ = c.String(http.StatusBadGateway, err.Error()) }
	inside := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if err := next(c); err != nil {
				c.Echo().HTTPErrorHandler(c, err)
			}
			return nil
		}
	}
	e.POST("/", func(c *echo.Context) error {
		if ran++; ran == 1 {
			return errors.New("closed")
		}
		return c.String(http.StatusCreated, "paid")
	}, echo.WrapMiddleware(stdmw.Idempotent(runs, stdmw.AnyCaller())), inside)
	for i, want := range []string{"502 closed", "201 paid", "201 paid"} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Idempotency-Key", "k")
		e.ServeHTTP(w, r)
		if got := fmt.Sprint(w.Code, " ", w.Body); got != want {
			t.Errorf("answer %d is %s, want %s", i+1, got, want)
		}
	}
}
