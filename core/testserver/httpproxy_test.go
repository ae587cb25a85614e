package testserver_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

func TestHTTPProxy(t *testing.T) {
	t.Parallel()
	const size = 64 << 10
	// stage returns a proxy, the number of requests that the server behind it has
	// handled, and a function that sends a POST through the proxy.
	stage := func(t *testing.T) (*testserver.Proxy, *atomic.Int64, func(path, body string) (string, error)) {
		t.Parallel()
		var runs atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			answer := fmt.Sprintf("%d %s", runs.Add(1), body)
			switch r.URL.Path {
			case "/chunked":
				_ = http.NewResponseController(w).Flush()
			case "/closed":
				w.Header().Set("Connection", "close")
				w.Header().Set("Transfer-Encoding", "identity")
			case "/early":
				w.WriteHeader(http.StatusEarlyHints)
			}
			_, _ = io.WriteString(w, answer)
		}))
		t.Cleanup(server.Close)
		p := testserver.NewHTTPProxy(t, server.Listener.Addr().String())
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		client := http.Client{Transport: transport, Timeout: time.Minute}
		return p, &runs, func(path, body string) (string, error) {
			// A body of unknown length is sent in chunks, and only once.
			resp, err := client.Post("http://"+p.Addr+path, "text/plain", struct{ io.Reader }{strings.NewReader(body)})
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			all, err := io.ReadAll(resp.Body)
			return string(all), err
		}
	}

	t.Run("messages of every form", func(t *testing.T) {
		p, _, post := stage(t)
		long := strings.Repeat("x", size)
		for i, path := range []string{"/", "/chunked", "/closed", "/early", "/?a=b"} {
			for j, body := range []string{"", "short", long} {
				if got, err := post(path, body); err != nil || got != fmt.Sprintf("%d %s", 3*i+j+1, body) {
					t.Errorf("%s with %d bytes: got %d bytes, %v", path, len(body), len(got), err)
				}
			}
		}
		r := p.Requests()
		if last := r[len(r)-1]; len(r) != 15 || last.Name != "POST" || last.Path != "/" || last.Args[1] != "/?a=b" || p.Bytes() < 5*size {
			t.Errorf("got %d requests, the last %+v, %d bytes", len(r), last, p.Bytes())
		}
	})

	for name, c := range map[string]struct {
		fault testserver.Action
		runs  int64
		part  bool // a part of the reply arrives
	}{
		"a lost request":  {testserver.CloseRequest, 0, false},
		"a lost reply":    {testserver.CloseReply, 1, false},
		"half of a reply": {testserver.CutReply, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			p, runs, post := stage(t)
			f := p.Inject(testserver.Match{Command: "post", Arg: "/pay"}, c.fault)
			got, err := post("/pay", strings.Repeat("x", size))
			if err == nil || (got != "") != c.part || runs.Load() != c.runs || p.Times(f) != 1 {
				t.Errorf("got %d bytes, %v, %d runs, %d faults", len(got), err, runs.Load(), p.Times(f))
			}
			if _, err := post("/pay", ""); err != nil || runs.Load() != c.runs+1 {
				t.Errorf("the next request: %v, %d runs", err, runs.Load())
			}
		})
	}

	// The server handles the request twice, and the client receives one reply.
	t.Run("doubled request", func(t *testing.T) {
		p, runs, post := stage(t)
		f := p.Inject(testserver.Match{Command: "post"}, testserver.DoubleRequest)
		if got, err := post("/", "5"); err != nil || got != "1 5" {
			t.Errorf("got %q, %v", got, err)
		}
		f.AwaitAnswer(t)
		if n := runs.Load(); n != 2 {
			t.Errorf("got %d runs, want 2", n)
		}
	})
}
