package gozero_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/zeromicro/go-zero/core/conf"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/rest"
	"github.com/zeromicro/go-zero/rest/pathvar"

	"github.com/lockkit/lockkit/httpmw/internal/mounted"
)

func TestGoZero(t *testing.T) {
	logx.Disable()
	mounted.Run(t, func(routes ...mounted.Route) http.Handler {
		var c rest.RestConf
		if err := conf.FillDefault(&c); err != nil {
			t.Fatal(err)
		}
		// The timeout would hold a response back until the handler has returned.
		c.Middlewares.Timeout = false
		c.Middlewares.Recover = false // it would also respond to http.ErrAbortHandler
		server, err := rest.NewServer(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range routes {
			around := []rest.Middleware{rest.ToMiddleware(pathVars)}
			for _, middleware := range r.Around {
				around = append(around, rest.ToMiddleware(middleware))
			}
			path := strings.NewReplacer("{", ":", "}", "").Replace(r.Path)
			server.AddRoutes(rest.WithMiddlewares(around, rest.Route{Method: r.Method, Path: path, Handler: r.Handler}))
		}
		serverless, err := rest.NewServerless(server)
		if err != nil {
			t.Fatal(err)
		}
		return http.HandlerFunc(serverless.Serve)
	})
}

// pathVars lets stdmw.Path find the parameters of go-zero's router.
func pathVars(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range pathvar.Vars(r) {
			r.SetPathValue(name, value)
		}
		next.ServeHTTP(w, r)
	})
}
