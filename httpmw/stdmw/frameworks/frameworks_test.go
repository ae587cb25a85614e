package frameworks_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw/internal/mounted"
	"github.com/lockkit/lockkit/httpmw/stdmw"
)

func TestChi(t *testing.T) {
	mounted.Run(t, func(routes ...mounted.Route) http.Handler {
		router := chi.NewRouter()
		for _, r := range routes {
			router.With(r.Around...).Method(r.Method, r.Path, r.Handler)
		}
		return router
	})
}

func TestEcho(t *testing.T) {
	mounted.Run(t, func(routes ...mounted.Route) http.Handler {
		e := echo.New()
		for _, r := range routes {
			around := []echo.MiddlewareFunc{pathValues}
			for _, middleware := range r.Around {
				around = append(around, echo.WrapMiddleware(middleware))
			}
			path := strings.NewReplacer("{", ":", "}", "").Replace(r.Path)
			e.Add(r.Method, path, echo.WrapHandler(r.Handler), around...)
		}
		return e
	})
}

// pathValues lets stdmw.Path find echo's parameters.
func pathValues(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		for i, name := range c.ParamNames() {
			c.Request().SetPathValue(name, c.ParamValues()[i])
		}
		return next(c)
	}
}

// TestEchoErrors checks that echo responds to a handler's error only after all
// middlewares have returned. An inner middleware can respond earlier.
func TestEchoErrors(t *testing.T) {
	t.Parallel()
	fails := func() error { return errors.New("closed") }
	for name, test := range map[string]struct {
		inside   []echo.MiddlewareFunc
		first    func() error
		want     []string
		reported int
	}{
		"inner response not stored": {[]echo.MiddlewareFunc{answered}, fails, []string{"502 closed", "201 paid", "201 paid"}, 0},
		"empty response stored":     {nil, fails, []string{"502 closed", "200 ", "200 "}, 1},
		"outer response to a panic": {nil, func() error { panic("closed") }, []string{"502 closed", "201 paid", "201 paid"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var reported mistakes
			locks, err := core.New(memstore.New(), core.WithObserver(&reported))
			if err != nil {
				t.Fatal(err)
			}
			runs, err := once.New(locks)
			if err != nil {
				t.Fatal(err)
			}
			e, ran := echo.New(), 0
			e.HTTPErrorHandler = func(err error, c echo.Context) { _ = c.String(http.StatusBadGateway, err.Error()) }
			around := append([]echo.MiddlewareFunc{recovers, echo.WrapMiddleware(stdmw.Idempotent(runs, stdmw.AnyCaller()))}, test.inside...)
			e.POST("/", func(c echo.Context) error {
				if ran++; ran == 1 {
					return test.first()
				}
				return c.String(http.StatusCreated, "paid")
			}, around...)
			for i, want := range test.want {
				w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil)
				r.Header.Set("Idempotency-Key", "k")
				e.ServeHTTP(w, r)
				if got := fmt.Sprint(w.Code, " ", w.Body); got != want {
					t.Errorf("answer %d is %s, want %s", i+1, got, want)
				}
			}
			if reported.n != test.reported {
				t.Errorf("%d mistakes are reported, want %d", reported.n, test.reported)
			}
		})
	}
}

// recovers responds to a panic by echo's error handler.
func recovers(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		defer func() {
			if r := recover(); r != nil {
				c.Error(fmt.Errorf("%v", r))
			}
		}()
		return next(c)
	}
}

// mistakes counts the core.Misused events of wrongly mounted middlewares.
type mistakes struct{ n int }

func (m *mistakes) Observe(_ context.Context, e core.Event) {
	if e.Kind == core.Misused {
		m.n++
	}
}

// answered responds to errors of inner handlers.
func answered(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := next(c); err != nil {
			c.Error(err)
		}
		return nil
	}
}
