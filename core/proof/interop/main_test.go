package interop_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.TestMode)
	gin.DefaultErrorWriter = io.Discard
	os.Exit(m.Run())
}

// soon limits how long a test waits for an event on a busy machine.
const soon = 20 * time.Second

// site is a gin service with a real listener, behind one middleware.
type site struct {
	*gin.Engine
	t      *testing.T
	locker *core.Locker
	once   *once.Once
	url    string
	client *http.Client
}

func newSite(t *testing.T, outside gin.HandlerFunc) *site {
	t.Helper()
	s := &site{Engine: gin.New(), t: t}
	s.Use(outside)
	var err error
	if s.locker, err = core.New(memstore.New()); err != nil {
		t.Fatal(err)
	}
	if s.once, err = once.New(s.locker); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Engine)
	s.url, s.client = server.URL, server.Client()
	// The test must see the bytes as sent.
	s.client.Transport.(*http.Transport).DisableCompression = true
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
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

type reply struct {
	status  int
	header  http.Header
	length  int64
	chunked bool
	body    string
	broken  string // why the body ended early
}

// post sends a request of a client that accepts gzip. header has pairs of names and
// values.
func (s *site) post(path, body string, header ...string) reply {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), soon)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	r := reply{
		status: resp.StatusCode, header: resp.Header, length: resp.ContentLength,
		chunked: slices.Contains(resp.TransferEncoding, "chunked"), body: string(data),
	}
	if err != nil {
		r.broken = err.Error()
	}
	r.header.Del("Date")
	return r
}

// text returns the body after decompression.
func (r reply) text() string {
	if r.header.Get("Content-Encoding") != "gzip" || r.body == "" {
		return r.body
	}
	zip, err := gzip.NewReader(bytes.NewReader([]byte(r.body)))
	if err != nil {
		return "no gzip: " + r.body
	}
	data, err := io.ReadAll(zip)
	if err != nil {
		return "broken gzip: " + string(data)
	}
	return string(data)
}

// different returns the difference between two replies, or "" if they are equal.
func different(got, want reply) string {
	switch {
	case got.status != want.status:
		return fmt.Sprintf("the status is %d, want %d", got.status, want.status)
	case !maps.EqualFunc(got.header, want.header, slices.Equal):
		return fmt.Sprintf("the header is %v, want %v", got.header, want.header)
	case got.length != want.length || got.chunked != want.chunked:
		return fmt.Sprintf("the length is %d (chunked %v), want %d (%v)", got.length, got.chunked, want.length, want.chunked)
	case got.body != want.body:
		return fmt.Sprintf("the body is %.200q, want %.200q", got.body, want.body)
	case got.broken != want.broken:
		return fmt.Sprintf("reading ended with %q, want %q", got.broken, want.broken)
	}
	return ""
}
