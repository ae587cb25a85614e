package frameworks_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	khttp "github.com/go-kratos/kratos/v2/transport/http"
	"github.com/gorilla/mux"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/httpmw/internal/mounted"
	"github.com/lockkit/lockkit/httpmw/stdmw"
)

func TestKratos(t *testing.T) {
	mounted.Run(t, func(routes ...mounted.Route) http.Handler {
		// Otherwise a handler's context times out after a second.
		server := khttp.NewServer(khttp.Timeout(0))
		router := server.Route("/")
		for _, r := range routes {
			around := []khttp.FilterFunc{routeVars}
			for _, middleware := range r.Around {
				around = append(around, middleware)
			}
			router.Handle(r.Method, r.Path, func(c khttp.Context) error {
				r.Handler(c.Response(), c.Request())
				return nil
			}, around...)
		}
		return server
	})
}

// TestKratos_Timeout checks that a handler's context times out by default.
func TestKratos_Timeout(t *testing.T) {
	t.Parallel()
	locks, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	server, ended := khttp.NewServer(), make(chan error, 1)
	server.Route("/").Handle(http.MethodPost, "/orders/{id}", func(c khttp.Context) error {
		select {
		case <-c.Request().Context().Done():
			ended <- context.Cause(c.Request().Context())
		case <-time.After(time.Minute):
			ended <- nil
		}
		return nil
	}, routeVars, stdmw.Lock(locks, "order", stdmw.Path("id")))
	server.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders/5", nil))
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
}

// routeVars lets stdmw.Path find the parameters of Kratos's router.
func routeVars(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range mux.Vars(r) {
			r.SetPathValue(name, value)
		}
		next.ServeHTTP(w, r)
	})
}
