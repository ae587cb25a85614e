package stdmw_test

import (
	"net/http"
	"testing"

	"github.com/lockkit/lockkit/httpmw/internal/mounted"
)

func TestServeMux(t *testing.T) {
	mounted.Run(t, func(routes ...mounted.Route) http.Handler {
		mux := http.NewServeMux()
		for _, r := range routes {
			h := http.Handler(r.Handler)
			for i := len(r.Around) - 1; i >= 0; i-- {
				h = r.Around[i](h)
			}
			mux.Handle(r.Method+" "+r.Path, h)
		}
		return mux
	})
}
