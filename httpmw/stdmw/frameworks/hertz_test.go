package frameworks_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/adaptor"
	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/cloudwego/hertz/pkg/network/standard"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw/stdmw"
)

// onHertz returns a handler of Hertz whose parameters stdmw.Path finds.
func onHertz(h http.Handler) app.HandlerFunc {
	return func(ctx context.Context, c *app.RequestContext) {
		adaptor.HertzHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, p := range c.Params {
				r.SetPathValue(p.Key, p.Value)
			}
			h.ServeHTTP(w, r)
		}))(ctx, c)
	}
}

func TestHertz(t *testing.T) {
	t.Parallel()
	hlog.SetLevel(hlog.LevelFatal)
	locks, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	runs, err := once.New(locks)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := server.New(server.WithListener(listener), server.WithTransport(standard.NewTransporter))
	const clicks = 20
	var ran atomic.Int32
	refused := make(chan struct{}, clicks)
	h.POST("/orders/:id/pay", onHertz(stdmw.Lock(locks, "order", stdmw.Path("id"))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ran.Add(1)
		for range clicks - 1 { // works until the others have their response
			<-refused
		}
		lease, _ := core.LeaseFromContext(r.Context())
		_, _ = io.WriteString(w, lease.Key())
	}))))
	charged := 0
	h.POST("/charges", onHertz(stdmw.Idempotent(runs, stdmw.AnyCaller())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charged++
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Location", "/charges/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "charge %d of %s", charged, body)
	}))))
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
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	url := "http://" + listener.Addr().String()
	post := func(path, key, body string) string {
		r, err := http.NewRequest(http.MethodPost, url+path, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return ""
		}
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		response, err := client.Do(r)
		if err != nil {
			t.Error(err)
			return ""
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Error(err)
		}
		if response.Header.Get("Content-Type") == "application/problem+json" {
			text = nil
		}
		return fmt.Sprintf("%d %s %s%s", response.StatusCode, text, response.Header.Get("Location"), response.Header.Get("Idempotent-Replayed"))
	}

	var wg sync.WaitGroup
	var paid atomic.Int32
	for range clicks {
		wg.Go(func() {
			switch got := post("/orders/42/pay", "", ""); got {
			case "409  ":
				refused <- struct{}{}
			case "200 order:42 ":
				paid.Add(1)
			default:
				t.Errorf("got %q", got)
				refused <- struct{}{}
			}
		})
	}
	wg.Wait()
	if paid.Load() != 1 || ran.Load() != 1 {
		t.Errorf("got %d paid of %d runs, want 1", paid.Load(), ran.Load())
	}
	for i, want := range []string{"201 charge 1 of 5 /charges/1", "201 charge 1 of 5 /charges/1true", "422  "} {
		if got := post("/charges", "k", []string{"5", "5", "6"}[i]); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := post("/charges", "", "5"); got != "400  " {
		t.Errorf("got %q without a key", got)
	}
}
