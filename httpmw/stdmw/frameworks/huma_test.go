package frameworks_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/adapters/humamux"

	"github.com/lockkit/lockkit/httpmw/internal/mounted"
)

// These adapters have the two functions that the function wrapped calls.
var (
	_ = []func(huma.Context) (*http.Request, http.ResponseWriter){humago.Unwrap, humachi.Unwrap, humamux.Unwrap}
	_ = []func(*huma.Operation, *http.Request, http.ResponseWriter) huma.Context{humago.NewContext, humachi.NewContext, humamux.NewContext}
)

func TestHuma(t *testing.T) {
	mounted.Run(t, func(routes ...mounted.Route) http.Handler {
		mux := http.NewServeMux()
		api := humago.New(mux, huma.DefaultConfig("orders", "1.0.0"))
		for _, r := range routes {
			op := huma.Operation{OperationID: strings.ReplaceAll(r.Path, "/", "-"), Method: r.Method, Path: r.Path}
			for _, middleware := range r.Around {
				op.Middlewares = append(op.Middlewares, wrapped(middleware))
			}
			huma.Register(api, op, func(context.Context, *struct{}) (*huma.StreamResponse, error) {
				return &huma.StreamResponse{Body: func(c huma.Context) {
					request, w := humago.Unwrap(c)
					r.Handler(w, request)
				}}, nil
			})
		}
		return mux
	})
}

// wrapped makes middleware a middleware of a Huma operation.
func wrapped(middleware func(http.Handler) http.Handler) func(huma.Context, func(huma.Context)) {
	return func(c huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(c)
		middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next(humago.NewContext(c.Operation(), r, w))
		})).ServeHTTP(w, r)
	}
}
