package httpmw_test

import (
	"context"
	"crypto/sha256"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/httpmw"
)

// byHand returns a handler that makes the same calls to the store as the middleware.
func byHand(o *once.Once) gin.HandlerFunc {
	return func(c *gin.Context) {
		data, err := io.ReadAll(c.Request.Body)
		if err != nil {
			c.Status(http.StatusBadRequest)
			return
		}
		sum := sha256.Sum256(data)
		call := once.Call{Name: "http", Scope: "any", Key: c.GetHeader("Idempotency-Key"), Fingerprint: sum[:]}
		out, err := o.Do(c.Request.Context(), call, func(context.Context) (once.Answer, error) {
			return once.Answer{Value: data}, nil
		})
		if err != nil {
			c.Status(http.StatusServiceUnavailable)
			return
		}
		c.Data(http.StatusOK, "text/plain", out.Value)
	}
}

func cached(c *gin.Context) {
	data, _ := c.Get(gin.BodyBytesKey)
	c.Data(http.StatusOK, "text/plain", data.([]byte))
}

// services returns two services, with the middleware and by hand, each with its own
// Locker.
func services(tb testing.TB, store func() core.Store) map[string]http.Handler {
	tb.Helper()
	made := make(map[string]http.Handler)
	for name, mount := range map[string]func(r *gin.Engine, o *once.Once){
		"by hand":    func(r *gin.Engine, o *once.Once) { r.POST("/", byHand(o)) },
		"middleware": func(r *gin.Engine, o *once.Once) { r.POST("/", httpmw.Idempotent(o, httpmw.AnyCaller()), cached) },
	} {
		l, err := core.New(store())
		if err != nil {
			tb.Fatal(err)
		}
		o, err := once.New(l)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = l.Close(context.Background()) })
		r := gin.New()
		mount(r, o)
		made[name] = r
	}
	return made
}

func ask(tb testing.TB, h http.Handler, key, body string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK || w.Body.Len() != len(body) {
		tb.Fatalf("got %d with %d bytes", w.Code, w.Body.Len())
	}
}

// TestAllocations limits the middleware's additional allocations, compared with
// hand-written code. The limit is the same for short and long bodies.
func TestAllocations(t *testing.T) {
	made := services(t, func() core.Store { return memstore.New() })
	n := 0
	measure := func(h http.Handler, size int, replay bool) float64 {
		body := strings.Repeat("x", size)
		return testing.AllocsPerRun(50, func() {
			if !replay {
				n++
			}
			ask(t, h, "k"+strconv.Itoa(n), body)
		})
	}
	for _, c := range []struct {
		name   string
		replay bool
		most   float64
	}{{"first run", false, 32}, {"replay", true, 20}} {
		for _, size := range []int{10, 1 << 10, 16 << 10} {
			n += 1000
			extra := measure(made["middleware"], size, c.replay) - measure(made["by hand"], size, c.replay)
			t.Logf("%s, %d bytes: %.0f allocations more than by hand", c.name, size, extra)
			if extra > c.most {
				t.Errorf("%s, %d bytes: %.0f allocations more than by hand, at most %.0f", c.name, size, extra, c.most)
			}
		}
	}
}

// BenchmarkIdempotent compares the two services on a real Redis, without HTTP
// connections.
func BenchmarkIdempotent(b *testing.B) {
	server := testserver.StartRedis(b)
	made := services(b, func() core.Store {
		store, err := redisstore.New(testclient.Redis(b, server.Addr))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = store.Close() })
		return store
	})
	for what, key := range map[string]func(i int) string{
		"first run":  func(i int) string { return strconv.Itoa(i) },
		"one replay": func(int) string { return "replay" },
	} {
		b.Run(what, func(b *testing.B) {
			took := make(map[string][]time.Duration)
			for i := 0; b.Loop(); i++ {
				// The services run alternately, so that both run under the same load.
				for name, h := range made {
					start := time.Now()
					ask(b, h, name[:2]+key(i), `{"amount":5}`)
					took[name] = append(took[name], time.Since(start))
				}
			}
			for _, times := range took {
				slices.Sort(times)
			}
			median := func(name string) float64 { return float64(took[name][len(took[name])/2]) }
			b.ReportMetric(median("by hand"), "ns/by-hand")
			b.ReportMetric(median("middleware"), "ns/middleware")
			b.ReportMetric(median("middleware")/median("by hand"), "ratio")
		})
	}
}
