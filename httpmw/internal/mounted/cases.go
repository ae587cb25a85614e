package mounted

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw/stdmw"
)

// key responds with the key of its lease.
func key(w http.ResponseWriter, r *http.Request) {
	lease, ok := core.LeaseFromContext(r.Context())
	if !ok || lease.Token() == 0 || lease.Context().Err() != nil {
		http.Error(w, "no live lease with a token", http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, lease.Key())
}

func (s *site) lock(opts ...stdmw.Option) func(http.Handler) http.Handler {
	return stdmw.Lock(s.locker, "order", stdmw.Path("id"), opts...)
}

func (s *site) once(opts ...stdmw.Option) func(http.Handler) http.Handler {
	if s.header != "Idempotency-Key" {
		opts = append(opts, stdmw.Key(stdmw.Header(s.header)), stdmw.Optional())
	}
	return stdmw.Idempotent(s.runs, stdmw.AnyCaller(), opts...)
}

func clicks(t *testing.T, s *site) {
	const clicks = 20
	var ran, paid, refused atomic.Int32
	answered := make(chan struct{}, clicks)
	s.serve(nil, route("/orders/{id}/pay", func(w http.ResponseWriter, r *http.Request) {
		ran.Add(1)
		for range clicks - 1 { // until all other requests have their responses
			within(t, "the others are answered", answered)
		}
		key(w, r)
	}, s.lock()))
	var wg sync.WaitGroup
	for range clicks {
		wg.Go(func() {
			switch r := s.post("/orders/42/pay", ""); {
			case r.status == http.StatusOK && r.body == "order:42":
				paid.Add(1)
			case r.is(http.StatusConflict, "lock-busy") && r.header.Get("Retry-After") == "1":
				refused.Add(1)
			default:
				t.Errorf("got %d %q", r.status, r.body)
			}
			answered <- struct{}{}
		})
	}
	wg.Wait()
	if ran.Load() != 1 || paid.Load() != 1 || refused.Load() != clicks-1 {
		t.Errorf("%d ran, %d paid, %d were refused", ran.Load(), paid.Load(), refused.Load())
	}
}

func sources(t *testing.T, s *site) {
	lock := func(key stdmw.KeyFunc) func(http.Handler) http.Handler {
		return stdmw.Lock(s.locker, "order", key, stdmw.BodyLimit(100))
	}
	echo := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Body", string(body))
		key(w, r)
	}
	s.serve(nil,
		route("/path/{id}", echo, lock(stdmw.Path("id"))), route("/query", echo, lock(stdmw.Query("id"))),
		route("/header", echo, lock(stdmw.Header("X-Id"))), route("/form", echo, lock(stdmw.Form("id"))),
		route("/json", echo, lock(stdmw.JSON("order.id"))), route("/join/{id}", echo, lock(stdmw.Join(stdmw.Path("id"), stdmw.Query("id")))),
	)
	const form = "application/x-www-form-urlencoded"
	for _, c := range []struct {
		path, body, contentType string
		want                    string // the key, or the kind of problem
	}{
		{"/path/a:1", "", "", core.Key("order", "a:1")}, {"/query?id=7", "", "", "order:7"},
		{"/header", "", "", "order:9"}, {"/form", "id=7&x=1", form, "order:7"},
		{"/json", `{"order":{"id":9007199254740993}}`, "application/json", "order:9007199254740993"},
		{"/join/a?id=b", "", "", core.Key("order", "a", "b")},
		{"/query", "", "", "key-invalid"}, {"/form", "id=1&id=2", form, "key-invalid"}, {"/json", "[]", "", "key-invalid"},
		{"/json", `{"order":{"id":` + strings.Repeat("1", 100) + `}}`, "", "body-too-large"},
	} {
		r := s.post(c.path, c.body, "X-Id", "9", "Content-Type", c.contentType)
		switch c.want {
		case "key-invalid", "body-too-large":
			if !r.is(r.status, c.want) || r.status >= 500 {
				t.Errorf("%s: got %d %q, want %s", c.path, r.status, r.body, c.want)
			}
		default:
			if r.status != http.StatusOK || r.body != c.want || r.header.Get("X-Body") != c.body {
				t.Errorf("%s: got %d %q, and the handler had %q", c.path, r.status, r.body, r.header.Get("X-Body"))
			}
		}
	}
}

func leaving(t *testing.T, s *site) {
	inside, ended := make(chan struct{}), make(chan error, 1)
	s.serve(nil, route("/{id}", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		close(inside)
		within(t, "the context ends", r.Context().Done())
		ended <- context.Cause(r.Context())
	}, s.lock()))
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		within(t, "the handler runs", inside)
		if s.isFree("order:5") {
			t.Error("the key is free while the handler runs")
		}
		leave()
	}()
	if resp, err := s.begin(ctx, "/5", "body"); err == nil {
		resp.Body.Close()
		t.Errorf("got %d", resp.StatusCode)
	}
	if err := within(t, "the context is done", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("the cause is %v", err)
	}
	s.eventually("the key is free", func() bool { return s.isFree("order:5") })
}

func panics(t *testing.T, s *site) {
	var runs atomic.Int32
	s.serve(nil, route("/{id}", func(w http.ResponseWriter, r *http.Request) {
		if runs.Add(1) == 1 {
			_, _ = io.WriteString(w, "half")
			panic(http.ErrAbortHandler)
		}
		n, _ := once.AttemptFromContext(r.Context())
		fmt.Fprint(w, "attempt ", n)
	}, s.once(), s.lock()))
	resp, err := s.begin(t.Context(), "/5", "")
	if err == nil {
		resp.Body.Close()
		if !s.recovers || resp.StatusCode != http.StatusInternalServerError {
			t.Errorf("got %d", resp.StatusCode)
		}
	}
	if !s.isFree("order:5") {
		t.Error("the key is not free")
	}
	if r := s.post("/5", ""); r.body != "attempt 2" || r.replayed() {
		t.Errorf("got %d %q", r.status, r.body)
	}
}

func misused(t *testing.T, s *site) {
	s.serve(nil, route("/{other}", func(http.ResponseWriter, *http.Request) { t.Error("it ran") }, s.lock()))
	for range 2 {
		if r := s.post("/5", ""); !r.is(http.StatusInternalServerError, "lock-failed") {
			t.Errorf("got %d %q", r.status, r.body)
		}
	}
	if e := within(t, "the observer is notified", s.misused); e.Name != "order" || !strings.Contains(e.Err.Error(), `no path parameter "id"`) {
		t.Errorf("got the event %v", e)
	}
	if len(s.misused) != 0 {
		t.Error("the observer was notified twice")
	}
}

func replays(t *testing.T, s *site) {
	var runs atomic.Int32
	text := strings.Repeat("receipt ", 10_000)
	s.serve(nil, route("/{id}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/receipts/1")
		w.Header().Set("Set-Cookie", "a=b")
		w.WriteHeader(http.StatusCreated)
		if n, err := io.Copy(w, strings.NewReader(text)); n != int64(len(text)) || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
		runs.Add(1)
	}, s.once(), s.lock()), route("/{id}/nothing", func(http.ResponseWriter, *http.Request) { runs.Add(1) }, s.once()),
		route("/{id}/status", func(w http.ResponseWriter, _ *http.Request) { runs.Add(1); w.WriteHeader(http.StatusNoContent) }, s.once()))
	for i, want := range []reply{{http.StatusCreated, nil, text}, {http.StatusOK, nil, ""}, {http.StatusNoContent, nil, ""}} {
		path := []string{"/5", "/5/nothing", "/5/status"}[i]
		for _, again := range []bool{false, true} {
			r := s.post(path, "5 euros", s.header, path)
			if r.status != want.status || r.body != want.body || r.replayed() != again || int(runs.Load()) != i+1 {
				t.Errorf("%s: got %d with %d bytes, replayed %v, after %d runs", path, r.status, len(r.body), r.replayed(), runs.Load())
			}
			if i == 0 && (r.header.Get("Location") != "/receipts/1" || (r.header.Get("Set-Cookie") == "") != again) {
				t.Errorf("%s: got %v", path, r.header)
			}
		}
	}
	if r := s.post("/5", "6 euros", s.header, "/5"); !r.is(http.StatusUnprocessableEntity, "idempotency-mismatch") {
		t.Errorf("got %d %q", r.status, r.body)
	}
}

// lengths checks the Content-Length of a long replay. Idempotent is mounted around the
// router, because a router's writer can send another length. The response is long,
// because net/http sets the length of a short response automatically.
func lengths(t *testing.T, s *site) {
	body := strings.Repeat("receipt ", 10_000)
	s.serve(s.once(), route("/{id}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, body[:100])
		fmt.Fprint(w, body[100:])
	}))
	for _, replayed := range []bool{false, true} {
		r := s.post("/5", "")
		if r.body != body || r.replayed() != replayed {
			t.Errorf("got %d bytes, replayed %v", len(r.body), r.replayed())
		}
		if said := r.header.Get("Content-Length"); replayed && said != fmt.Sprint(len(body)) {
			t.Errorf("the length is said to be %q", said)
		}
	}
}

// stream sends a request, and reads three lines that the handler writes one by one.
func (s *site) stream(path string, next chan<- struct{}, meanwhile func()) {
	s.t.Helper()
	resp, err := s.begin(s.t.Context(), path, "")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for n := range 3 {
		if !lines.Scan() || lines.Text() != fmt.Sprint("data: ", n) {
			s.t.Fatalf("got %q, %v; want line %d", lines.Text(), lines.Err(), n)
		}
		meanwhile()
		next <- struct{}{}
	}
	if lines.Scan() {
		s.t.Errorf("got %q too", lines.Text())
	}
}

func ticks(t *testing.T, contentType string, next <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		for n := range 3 {
			fmt.Fprintf(w, "data: %d\n", n)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			within(t, "the client wants more", next)
		}
	}
}

func streams(t *testing.T, s *site) {
	next := make(chan struct{})
	s.serve(nil, route("/{id}", ticks(t, "text/plain", next), s.lock()))
	s.stream("/5", next, func() {
		if s.isFree("order:5") {
			t.Error("the key is free during the stream")
		}
	})
	s.eventually("the key is free", func() bool { return s.isFree("order:5") })
}

func events(t *testing.T, s *site) {
	next := make(chan struct{})
	s.serve(nil, route("/{id}", ticks(t, "text/event-stream", next), s.once()))
	s.stream("/5", next, func() {})
	s.gone("/5")
}

// gone checks that the same request is refused with 410 when its run is complete.
func (s *site) gone(path string) {
	s.t.Helper()
	s.eventually("the run is over", func() bool { return s.post(path, "").status != http.StatusConflict })
	if r := s.post(path, ""); !r.is(http.StatusGone, "idempotency-unreplayable") {
		s.t.Errorf("got %d %q", r.status, r.body)
	}
}

func flushes(t *testing.T, s *site) {
	var runs atomic.Int32
	s.serve(nil, route("/{id}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "run ")
		w.(http.Flusher).Flush()
		fmt.Fprint(w, runs.Add(1))
	}, s.once()))
	keys := 0
	// On a machine that stalls for a second, the response is a stream.
	s.eventually("it is replayed", func() bool {
		keys++
		key := fmt.Sprint(keys)
		if r := s.post("/5", "", s.header, key); r.body != "run "+key || r.replayed() {
			t.Fatalf("got %d %q", r.status, r.body)
		}
		r := s.post("/5", "", s.header, key)
		return r.body == "run "+key && r.replayed()
	})
}

func hijacks(t *testing.T, s *site) {
	s.serve(nil, route("/{id}", func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if s.protocol == "HTTP/2.0" {
			if !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("got %v", err)
			}
			fmt.Fprint(w, "plain")
			return
		}
		if err != nil {
			t.Error(err)
			return
		}
		if s.isFree("order:5") {
			t.Error("the key is free while the connection is used")
		}
		fmt.Fprint(rw, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nraw")
		_ = rw.Flush()
		_ = conn.Close()
	}, s.once(), s.lock()))
	r := s.post("/5", "")
	if s.protocol == "HTTP/2.0" {
		if again := s.post("/5", ""); r.body != "plain" || again.body != "plain" || !again.replayed() {
			t.Errorf("got %d %q, then %d %q", r.status, r.body, again.status, again.body)
		}
		return
	}
	if r.status != http.StatusOK || r.body != "raw" {
		t.Errorf("got %d %q", r.status, r.body)
	}
	s.gone("/5")
	s.eventually("the key is free", func() bool { return s.isFree("order:5") })
}

func deadlines(t *testing.T, s *site) {
	s.serve(nil, route("/{id}", func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		if err := errors.Join(c.SetReadDeadline(time.Now().Add(patience)), c.SetWriteDeadline(time.Now().Add(patience))); err != nil {
			t.Error(err)
		}
		fmt.Fprint(w, "in time")
	}, s.lock(), s.once()))
	if r := s.post("/5", ""); r.body != "in time" {
		t.Errorf("got %d %q", r.status, r.body)
	}
}

func hints(t *testing.T, s *site) {
	s.serve(nil, route("/{id}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		fmt.Fprint(w, "paid")
	}, s.once()))
	hinted := make(chan string, 1)
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		hinted <- fmt.Sprint(code, h.Get("Link"))
		return nil
	}})
	resp, err := s.begin(ctx, "/5", "")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if data, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || string(data) != "paid" || err != nil {
		t.Errorf("got %d %q, %v", resp.StatusCode, data, err)
	}
	if got := within(t, "the hint arrives", hinted); got != "103</style.css>; rel=preload" {
		t.Errorf("the hint is %q", got)
	}
	s.gone("/5")
}

func timeoutOutside(t *testing.T, s *site) {
	var runs atomic.Int32
	finish := make(chan struct{})
	around := func(h http.Handler) http.Handler { return http.TimeoutHandler(h, time.Second, "late") }
	s.serve(around, route("/{id}", func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		within(t, "the handler may end", finish)
		w.WriteHeader(http.StatusCreated)
		key(w, r)
	}, s.once(stdmw.Detached()), s.lock()))
	if r := s.post("/5", ""); r.status != http.StatusServiceUnavailable || r.body != "late" {
		t.Errorf("got %d %q", r.status, r.body)
	}
	s.eventually("the handler runs", func() bool { return runs.Load() == 1 })
	if s.isFree("order:5") {
		t.Error("the key is free while the handler runs on")
	}
	if r := s.post("/5", ""); !r.is(http.StatusConflict, "idempotency-in-progress") && r.body != "late" {
		t.Errorf("got %d %q", r.status, r.body)
	}
	close(finish)
	s.eventually("the answer is there", func() bool { return s.post("/5", "").replayed() })
	if r := s.post("/5", ""); r.body != "late" && (r.status != http.StatusCreated || r.body != "order:5") || runs.Load() != 1 {
		t.Errorf("got %d %q after %d runs", r.status, r.body, runs.Load())
	}
	s.eventually("the key is free", func() bool { return s.isFree("order:5") })
}

func timeoutInside(t *testing.T, s *site) {
	var runs atomic.Int32
	h := http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if runs.Add(1) == 1 {
			within(t, "the time is up", r.Context().Done())
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "receipt")
	}), time.Second, "late")
	s.serve(nil, route("/{id}", h.ServeHTTP, s.lock(), s.once()))
	if r := s.post("/5", ""); r.status != http.StatusServiceUnavailable || r.body != "late" {
		t.Errorf("got %d %q", r.status, r.body)
	}
	for _, again := range []bool{false, true} {
		r := s.post("/5", "")
		if runs.Load() == 2 && (r.status != http.StatusCreated || r.body != "receipt" || r.replayed() != again) {
			t.Errorf("got %d %q, replayed %v", r.status, r.body, r.replayed())
		}
	}
}
