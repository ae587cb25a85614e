package frameworks_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/middlewares/server/recovery"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/adaptor"
	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/cloudwego/hertz/pkg/network/standard"

	"github.com/lockkit/lockkit/httpmw/internal/mounted"
)

// onHertz returns h as a handler of Hertz. stdmw.Path finds the route's parameters.
func onHertz(h http.Handler) app.HandlerFunc {
	return func(ctx context.Context, c *app.RequestContext) {
		adaptor.HertzHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, p := range c.Params {
				r.SetPathValue(p.Key, p.Value)
			}
			h.ServeHTTP(w, r)
			w.WriteHeader(http.StatusOK) // without a status Hertz sends no headers
		}))(ctx, c)
	}
}

func TestHertz(t *testing.T) {
	hlog.SetLevel(hlog.LevelFatal)
	mounted.RunServer(t, func(t *testing.T, routes ...mounted.Route) string {
		t.Helper()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		h := server.New(server.WithListener(listener), server.WithTransport(standard.NewTransporter))
		h.Use(recovery.Recovery())
		for _, r := range routes {
			around := http.Handler(r.Handler)
			for i := len(r.Around) - 1; i >= 0; i-- {
				around = r.Around[i](around)
			}
			h.Handle(r.Method, strings.NewReplacer("{", ":", "}", "").Replace(r.Path), onHertz(around))
		}
		done := make(chan error, 1)
		go func() { done <- h.Run() }()
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if err := h.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			<-done
		})
		return "http://" + listener.Addr().String()
	}, map[string]string{
		"client leaves":                     "the context of a handler is not canceled",
		"ResponseController sets deadlines": "deadlines are not supported",
		"length of a replay":                "a body is sent in chunks",
		"response after 103":                "103 is taken for the response",
	})
}
