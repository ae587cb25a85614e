package frameworks_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/lockkit/lockkit/httpmw/internal/mounted"
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
