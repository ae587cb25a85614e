package stdmw_test

import (
	"context"
	"crypto/sha256"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw/stdmw"
)

func echo(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(data)
}

// onceByHand returns a handler that makes the same calls to the store without the
// middleware.
func onceByHand(o *once.Once) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		sum := sha256.Sum256(data)
		call := once.Call{Name: "http", Scope: "any", Key: r.Header.Get("Idempotency-Key"), Fingerprint: sum[:]}
		out, err := o.Do(r.Context(), call, func(context.Context) (once.Answer, error) { return once.Answer{Value: data}, nil })
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(out.Value)
	}
}

func lockByHand(l *core.Locker) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		lease, err := l.TryAcquire(r.Context(), core.Key("order", r.PathValue("id")), core.Name("order"))
		if err != nil {
			w.WriteHeader(http.StatusConflict)
			return
		}
		defer func() { _ = lease.Release(context.WithoutCancel(r.Context())) }()
		echo(w, r.WithContext(lease.Context()))
	}
}

// TestAllocations limits the middlewares' additional allocations, compared with
// hand-written code. The limits are the same for short and long bodies.
func TestAllocations(t *testing.T) {
	l, o := newRuns(t)
	n := 0
	measure := func(h http.Handler, size int, replay bool) float64 {
		body := strings.Repeat("x", size)
		return testing.AllocsPerRun(200, func() {
			if !replay {
				n++
			}
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
			r.Header.Set("Idempotency-Key", "k"+strconv.Itoa(n))
			r.SetPathValue("id", "42")
			h.ServeHTTP(w, r)
			if w.Code != http.StatusOK || w.Body.Len() != size {
				t.Fatalf("got %d with %d bytes", w.Code, w.Body.Len())
			}
		})
	}
	buffer := make([]byte, 64<<10)
	again := func(w http.ResponseWriter, r *http.Request) { // reads the buffered body
		data := buffer[:r.ContentLength]
		if _, err := io.ReadFull(r.Body, data); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(data)
	}
	idempotent := stdmw.Idempotent(o, stdmw.AnyCaller())(http.HandlerFunc(again))
	locked := stdmw.Lock(l, "order", stdmw.Path("id"))(http.HandlerFunc(echo))
	for _, c := range []struct {
		name           string
		middleware, by http.Handler
		replay         bool
		most           float64
	}{
		{"a first run", idempotent, onceByHand(o), false, 32},
		{"a replay", idempotent, onceByHand(o), true, 20},
		{"a lock", locked, lockByHand(l), false, 6},
	} {
		for _, size := range []int{10, 1 << 10, 64 << 10} {
			n += 1000
			with := measure(c.middleware, size, c.replay)
			n += 1000
			extra := with - measure(c.by, size, c.replay)
			t.Logf("%s, %d bytes: %.0f allocations more than by hand", c.name, size, extra)
			if extra > c.most {
				t.Errorf("%s, %d bytes: %.0f allocations more than by hand, at most %.0f", c.name, size, extra, c.most)
			}
		}
	}
}
