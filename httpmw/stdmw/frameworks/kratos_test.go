package frameworks_test

import (
	"net/http"
	"testing"

	khttp "github.com/go-kratos/kratos/v2/transport/http"
	"github.com/gorilla/mux"

	"github.com/lockkit/lockkit/httpmw/internal/mounted"
)

func TestKratos(t *testing.T) {
	mounted.Run(t, func(routes ...mounted.Route) http.Handler {
		server := khttp.NewServer(khttp.Timeout(0)) // otherwise a handler's context times out after a second
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

// routeVars lets stdmw.Path find the parameters of Kratos's router.
func routeVars(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range mux.Vars(r) {
			r.SetPathValue(name, value)
		}
		next.ServeHTTP(w, r)
	})
}
