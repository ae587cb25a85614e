package frameworks_test

import (
	"context"
	"net/http"
	"net/http/httptest"
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
		r = r.WithContext(c.Context()) // with the values of outer middlewares of Huma
		middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next(humago.NewContext(c.Operation(), r, w))
		})).ServeHTTP(w, r)
	}
}

// TestHuma_Context checks that a middleware of net/http and the operation see the values
// that an outer middleware of Huma has put into the context.
func TestHuma_Context(t *testing.T) {
	type user struct{}
	ran := 0
	mux := http.NewServeMux()
	api := humago.New(mux, huma.DefaultConfig("orders", "1.0.0"))
	op := huma.Operation{OperationID: "pay", Method: http.MethodPost, Path: "/pay", Middlewares: huma.Middlewares{
		func(c huma.Context, next func(huma.Context)) { next(huma.WithValue(c, user{}, "ann")) },
		wrapped(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ran++
				if got := r.Context().Value(user{}); got != "ann" {
					t.Errorf("the middleware got the user %v, want ann", got)
				}
				next.ServeHTTP(w, r)
			})
		}),
	}}
	huma.Register(api, op, func(ctx context.Context, _ *struct{}) (*struct{}, error) {
		ran++
		if got := ctx.Value(user{}); got != "ann" {
			t.Errorf("the operation got the user %v, want ann", got)
		}
		return nil, nil
	})
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/pay", nil))
	if w.Code != http.StatusNoContent || ran != 2 {
		t.Errorf("got %d after %d of the two, want %d", w.Code, ran, http.StatusNoContent)
	}
}
