// Package mounted tests stdmw under routers that take middlewares of net/http, over
// HTTP/1.1 and HTTP/2 without TLS. The suite of httpmw tests the handling of requests,
// in httpmw and in stdmw.
package mounted

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
)

// patience is a generous deadline for short operations on a busy machine.
const patience = 20 * time.Second

// Route is a handler with middlewares around it, the first outermost.
type Route struct {
	Method, Path string // a parameter of the path is {name}
	Around       []func(http.Handler) http.Handler
	Handler      http.HandlerFunc
}

// Mount returns a router with these routes.
type Mount func(routes ...Route) http.Handler

// Serve serves routes until the test ends, and returns the URL of the server.
type Serve func(t *testing.T, routes ...Route) (url string)

// cases has the parts of the suite, by name.
var cases = map[string]func(t *testing.T, s *site){
	"twenty clicks":                     clicks,
	"each source finds its key":         sources,
	"client leaves":                     leaving,
	"handler panics":                    panics,
	"route without the parameter":       misused,
	"replay of a response":              replays,
	"length of a replay":                lengths,
	"stream under the lock":             streams,
	"server sent events":                events,
	"flushes within a second":           flushes,
	"hijacked connection":               hijacks,
	"ResponseController sets deadlines": deadlines,
	"response after 103":                hints,
	"TimeoutHandler outside":            timeoutOutside,
	"TimeoutHandler inside":             timeoutInside,
}

// Run tests a router. Over HTTP/1.1 it runs the suite again with keys of stdmw.Key.
func Run(t *testing.T, mount Mount) {
	t.Helper()
	t.Parallel()
	for _, to := range []target{
		{protocol: "HTTP/1.1", header: "Idempotency-Key"},
		{protocol: "HTTP/2.0", header: "Idempotency-Key"},
		{protocol: "HTTP/1.1", header: "X-Request"},
	} {
		to.start = func(s *site, around func(http.Handler) http.Handler, routes []Route) string {
			return s.listen(mount(routes...), around)
		}
		t.Run(to.protocol+" "+to.header, func(t *testing.T) { to.run(t, nil) })
	}
}

// RunServer tests a framework with its own server, over HTTP/1.1. lacks has the names
// of cases to skip, with the reasons.
func RunServer(t *testing.T, serve Serve, lacks map[string]string) {
	t.Helper()
	for name := range lacks {
		if cases[name] == nil {
			t.Errorf("there is no case %q", name)
		}
	}
	to := target{protocol: "HTTP/1.1", header: "Idempotency-Key", recovers: true}
	to.start = func(s *site, around func(http.Handler) http.Handler, routes []Route) string {
		if around != nil {
			for i, r := range routes {
				routes[i].Around = append([]func(http.Handler) http.Handler{around}, r.Around...)
			}
		}
		return serve(s.t, routes...)
	}
	to.run(t, lacks)
}

// target is a router or server under test, with the protocol and the header of the
// test's requests.
type target struct {
	protocol string
	header   string // of the idempotency key
	recovers bool   // the server responds with 500 if a handler panics
	start    func(s *site, around func(http.Handler) http.Handler, routes []Route) (url string)
}

func (to target) run(t *testing.T, lacks map[string]string) {
	t.Helper()
	t.Parallel()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if why := lacks[name]; why != "" {
				t.Skip(why)
			}
			t.Parallel()
			test(t, newSite(t, to))
		})
	}
}

// site is a service on a real listener, with its own locker and store.
type site struct {
	target
	t       *testing.T
	locker  *core.Locker
	runs    *once.Once
	misused chan core.Event
	url     string
	client  *http.Client
}

func newSite(t *testing.T, to target) *site {
	t.Helper()
	s := &site{target: to, t: t, misused: make(chan core.Event, 10)}
	var err error
	if s.locker, err = core.New(memstore.New(), core.WithObserver(s)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.locker.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	if s.runs, err = once.New(s.locker); err != nil {
		t.Fatal(err)
	}
	return s
}

// Observe records the events of misuse that a middleware reports.
func (s *site) Observe(_ context.Context, e core.Event) {
	if e.Kind == core.Misused {
		s.misused <- e
	}
}

// serve serves routes inside the middleware around, which can be nil.
func (s *site) serve(around func(http.Handler) http.Handler, routes ...Route) {
	s.t.Helper()
	s.url = s.start(s, around, routes)
	transport := &http.Transport{Protocols: s.protocols()}
	s.client = &http.Client{Transport: transport}
	s.t.Cleanup(transport.CloseIdleConnections)
}

func (s *site) listen(h http.Handler, around func(http.Handler) http.Handler) string {
	if around != nil {
		h = around(h)
	}
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = s.protocols()
	server.Start()
	s.t.Cleanup(server.Close)
	return server.URL
}

func (s *site) protocols() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(s.protocol == "HTTP/1.1")
	p.SetUnencryptedHTTP2(s.protocol == "HTTP/2.0")
	return &p
}

func route(path string, h http.HandlerFunc, around ...func(http.Handler) http.Handler) Route {
	return Route{http.MethodPost, path, around, h}
}

// reply is a completely read response.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) replayed() bool { return r.header.Get("Idempotent-Replayed") == "true" }

// is reports whether r is a problem of this kind.
func (r reply) is(status int, kind string) bool {
	return r.status == status && r.header.Get("Content-Type") == "application/problem+json" && strings.Contains(r.body, "#"+kind+`"`)
}

// post sends a request under an idempotency key. header has pairs of names and values.
func (s *site) post(path, body string, header ...string) reply {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := s.begin(ctx, path, body, header...)
	if err != nil {
		s.t.Errorf("%s: %v", path, err)
		return reply{header: http.Header{}}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Errorf("%s: %v", path, err)
	}
	return reply{resp.StatusCode, resp.Header, string(data)}
}

// begin sends a request like post, and returns when the response's header has arrived.
func (s *site) begin(ctx context.Context, path, body string, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set(s.header, "k")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return s.client.Do(req)
}

func (s *site) isFree(key string) bool {
	s.t.Helper()
	lease, err := s.locker.TryAcquire(context.Background(), key)
	if err == nil {
		err = lease.Release(context.Background())
		return err == nil
	}
	if !errors.Is(err, core.ErrBusy) {
		s.t.Error(err)
	}
	return false
}

// eventually polls until ok returns true. It fails the test after patience.
func (s *site) eventually(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not so in %v: %s", patience, what)
		}
	}
}

// within receives from ch. It fails the test after patience.
func within[T any](t *testing.T, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Errorf("not so in %v: %s", patience, what)
	}
	return v
}
