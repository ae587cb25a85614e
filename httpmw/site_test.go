package httpmw_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/store"
)

// soon is a generous deadline for short operations on a busy machine.
const soon = 20 * time.Second

// site is a gin service on a real listener, with its own locker and store.
type site struct {
	*gin.Engine
	mw     framework
	t      *testing.T
	store  *stub
	locker *core.Locker
	url    string
	client *http.Client
}

func (mw framework) newSite(t *testing.T, opts ...core.Option) *site {
	t.Helper()
	s := &site{Engine: newEngine(), mw: mw, t: t, store: &stub{Store: memstore.New()}}
	var err error
	if s.locker, err = core.New(s.store, opts...); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Engine)
	s.url, s.client = server.URL, &http.Client{Transport: renamed{server.Client().Transport, mw.header}}
	t.Cleanup(func() {
		server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := s.locker.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// reply is a completely read response.
type reply struct {
	status int
	header http.Header
	body   string
}

// send makes a request. header has pairs of names and values.
func (s *site) send(method, path, body string, header ...string) reply {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	r, err := s.try(ctx, method, path, body, header...)
	if err != nil {
		s.t.Errorf("%s %s: %v", method, path, err)
	}
	return r
}

func (s *site) try(ctx context.Context, method, path, body string, header ...string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(data)}, err
}

// problem reads the reply as a problem of this status.
func (r reply) problem(t *testing.T, status int) map[string]any {
	t.Helper()
	if r.status != status {
		t.Fatalf("got %d %q, want %d", r.status, r.body, status)
	}
	if ct := r.header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("Content-Type is %q", ct)
	}
	var p map[string]any
	if err := json.Unmarshal([]byte(r.body), &p); err != nil {
		t.Fatalf("%q: %v", r.body, err)
	}
	if p["status"] != float64(status) {
		t.Errorf("status in the body is %v, want %d", p["status"], status)
	}
	return p
}

func (s *site) isFree(key string) bool {
	s.t.Helper()
	lease, err := s.locker.TryAcquire(context.Background(), key)
	if errors.Is(err, core.ErrBusy) {
		return false
	}
	if err != nil {
		s.t.Error(err)
		return false
	}
	if err := lease.Release(context.Background()); err != nil {
		s.t.Error(err)
	}
	return true
}

// runs returns a Once that stores responses in the site's store.
func (s *site) runs(opts ...once.Option) *once.Once {
	s.t.Helper()
	o, err := once.New(s.locker, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}

// pay sends a POST under an idempotency key. header has pairs of names and values.
func (s *site) pay(key, path, body string, header ...string) reply {
	s.t.Helper()
	return s.send("POST", path, body, append(header, "Idempotency-Key", key)...)
}

// leaveWaiting sends a POST under an idempotency key whose run is in progress, and leaves
// when the request waits.
func (s *site) leaveWaiting(key, path, body string) {
	s.t.Helper()
	ctx, leave := context.WithCancel(s.t.Context())
	defer leave()
	before, left := s.store.attempts.Load(), make(chan error, 1)
	go func() {
		_, err := s.try(ctx, "POST", path, body, "Idempotency-Key", key)
		left <- err
	}()
	eventually(s.t, "the request waits", func() bool { return s.store.attempts.Load() > before })
	leave()
	if err := within(s.t, "the client leaves", left); !errors.Is(err, context.Canceled) {
		s.t.Errorf("got %v, want a request that its client left", err)
	}
}

// hold keeps key taken until the test ends or the returned function is called.
func (s *site) hold(key string) (release func()) {
	s.t.Helper()
	lease, err := s.locker.Acquire(context.Background(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	release = func() { _ = lease.Release(context.Background()) }
	s.t.Cleanup(release)
	return release
}

// eventually polls until the function ok returns true, less often the longer it takes. It
// fails the test after the time soon.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(soon)
	for pause := time.Millisecond; !ok(); pause = min(2*pause, 32*time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so in %v: %s", soon, what)
		}
		time.Sleep(pause)
	}
}

// within receives from ch. It fails the test after the time soon.
func within[T any](t *testing.T, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(soon):
		t.Fatalf("not so in %v: %s", soon, what)
	}
	return v
}

// stub is a store whose calls a test can make fail.
type stub struct {
	*memstore.Store
	acquire  atomic.Pointer[error] // the error of Acquire
	extend   atomic.Pointer[error] // the error of Extend
	release  atomic.Pointer[error] // the error of Release
	attempts atomic.Int32
	releases atomic.Int32
}

func (s *stub) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	s.attempts.Add(1)
	if err := s.acquire.Load(); err != nil {
		return store.Grant{}, *err
	}
	return s.Store.Acquire(ctx, c)
}

func (s *stub) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	if err := s.extend.Load(); err != nil {
		answers := make([]store.Extension, len(claims))
		for i := range answers {
			answers[i].Err = *err
		}
		return answers
	}
	return s.Store.Extend(ctx, claims)
}

func (s *stub) Release(ctx context.Context, c store.Claim) error {
	s.releases.Add(1)
	if err := s.release.Load(); err != nil {
		return *err
	}
	return s.Store.Release(ctx, c)
}

// gauge counts simultaneous callers.
type gauge struct{ now, most, total atomic.Int32 }

func (g *gauge) enter() {
	g.total.Add(1)
	n := g.now.Add(1)
	for m := g.most.Load(); n > m && !g.most.CompareAndSwap(m, n); m = g.most.Load() {
	}
}

func (g *gauge) leave() { g.now.Add(-1) }

// ok is a handler that responds with 200 and the key of its lease.
func ok(c *gin.Context) {
	lease, found := core.LeaseFromContext(c.Request.Context())
	if !found {
		c.String(http.StatusOK, "no lease")
		return
	}
	c.String(http.StatusOK, lease.Key())
}

type observer func(core.Event)

func (o observer) Observe(_ context.Context, e core.Event) { o(e) }
