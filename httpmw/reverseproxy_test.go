package httpmw_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
)

// proxy makes s forward requests to upstream, by a reverse proxy inside Idempotent.
func proxy(t *testing.T, s *site, upstream http.HandlerFunc, opts ...option) {
	t.Helper()
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	s.POST("/*any", s.mw.Idempotent(s.runs(), s.mw.AnyCaller(), opts...), gin.WrapH(httputil.NewSingleHostReverseProxy(target)))
}

func TestReverseProxyInside(t *testing.T) { onEachKey(t, testReverseProxyInside) }

func testReverseProxyInside(t *testing.T, mw framework) {
	t.Parallel()

	t.Run("response without Content-Length", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		proxy(t, s, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			for range 10 {
				fmt.Fprintf(w, "run %d, ", runs.Add(1))
				w.(http.Flusher).Flush()
			}
		})
		key := 0
		// On a machine that stalls for a second, the response is a stream.
		eventually(t, "it is replayed", func() bool {
			key++
			first, ran := s.pay(fmt.Sprint(key), "/", ""), runs.Load()
			if first.status != http.StatusCreated || first.header.Get("Content-Length") != "" || !strings.HasSuffix(first.body, fmt.Sprintf("run %d, ", ran)) {
				t.Fatalf("got %d %q %v", first.status, first.body, first.header)
			}
			again := s.pay(fmt.Sprint(key), "/", "")
			if runs.Load() != ran {
				t.Fatal("it ran again")
			}
			return again.isReplay() && again.status == http.StatusCreated && again.body == first.body
		})
	})

	t.Run("response over the limit", func(t *testing.T) {
		t.Parallel()
		s := mw.newSite(t)
		proxy(t, s, func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			_, _ = w.Write(bytes.Repeat([]byte("x"), 1000))
		}, mw.AnswerLimit(999))
		if r := s.pay("k", "/", ""); len(r.body) != 1000 {
			t.Errorf("got %d with %d bytes", r.status, len(r.body))
		}
		s.gone("k", "/")
	})

	t.Run("stream longer than a second", func(t *testing.T) {
		t.Parallel()
		s, next := mw.newSite(t), make(chan struct{})
		proxy(t, s, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, "one")
			w.(http.Flusher).Flush()
			within(t, "the client has read it", next)
			fmt.Fprintln(w, "two")
		})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "k")
		resp, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for _, want := range []string{"one", "two"} {
			if !lines.Scan() || lines.Text() != want {
				t.Errorf("got %q, %v; want %q", lines.Text(), lines.Err(), want)
			}
			if want == "one" {
				close(next)
			}
		}
		if lines.Scan() {
			t.Errorf("got %q too", lines.Text())
		}
		s.gone("k", "/")
	})
}
