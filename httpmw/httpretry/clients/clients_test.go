package clients_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-resty/resty/v2"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/httpmw/httpretry"
	"github.com/lockkit/lockkit/httpmw/stdmw"
	"github.com/lockkit/lockkit/retry"
)

// shop is a service under stdmw.Idempotent, behind the fault proxy.
type shop struct {
	*testserver.Proxy
	url       string
	charges   atomic.Int64
	transport *http.Transport

	mu   sync.Mutex
	keys []string // the different keys of the requests
}

func newShop(t *testing.T) *shop {
	t.Helper()
	locks, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	runs, err := once.New(locks)
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{transport: &http.Transport{}}
	pay := stdmw.Idempotent(runs, stdmw.AnyCaller())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.charges.Add(1)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "receipt")
	}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		if key := r.Header.Get("Idempotency-Key"); !slices.Contains(s.keys, key) {
			s.keys = append(s.keys, key)
		}
		s.mu.Unlock()
		pay.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(s.transport.CloseIdleConnections)
	s.Proxy = testserver.NewHTTPProxy(t, server.Listener.Addr().String())
	s.url = "http://" + s.Addr + "/pay"
	return s
}

// covered returns a transport that makes two tries to the shop, through base.
func (s *shop) covered(base http.RoundTripper) http.RoundTripper {
	return httpretry.New(base, httpretry.Hosts(s.Addr), httpretry.Retry(retry.Policy{Initial: time.Millisecond, Attempts: 2}))
}

// judge fails the test unless the client has the receipt. The server must have received
// this number of keys and made one charge for each key.
func (s *shop) judge(t *testing.T, status int, body string, err error, keys int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || status != http.StatusCreated || body != "receipt" || len(s.keys) != keys || s.charges.Load() != int64(keys) {
		t.Errorf("got %d %q, %v, charged %d times under %d keys; want %d of each", status, body, err, s.charges.Load(), len(s.keys), keys)
	}
}

// lostReplies is greater than the number of tries of the transport, and less than the
// number of tries of each other client.
const lostReplies = 5

// mounted has combinations of the transport and another client that tries again.
var mounted = map[string]struct {
	below  bool // the other client is below the transport, which has retry.None
	header bool // the caller's key is in the request's header
	ctx    bool // the caller's key is in the request's context
	keys   int  // the number of different keys that the server gets
}{
	"above with key in context": {ctx: true, keys: 1},
	"above with key in header":  {header: true, keys: 1},
	"below with random key":     {below: true, keys: 1},
	// In this case each try of the other client is a payment, as the documentation
	// warns.
	"above with random keys": {keys: 3},
}

func TestRetryablehttp(t *testing.T) {
	t.Parallel()
	for name, c := range mounted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.Inject(testserver.Match{Times: lostReplies}, testserver.CloseReply)
			other := retryablehttp.NewClient()
			other.Logger, other.RetryWaitMin, other.RetryWaitMax, other.RetryMax = nil, time.Millisecond, time.Millisecond, 9
			other.HTTPClient.Transport = s.covered(s.transport)
			client := other.StandardClient()
			if c.below {
				other.HTTPClient.Transport = s.transport
				client = &http.Client{Transport: httpretry.New(&retryablehttp.RoundTripper{Client: other}, httpretry.Hosts(s.Addr), httpretry.Retry(retry.None))}
			}
			ctx := t.Context()
			if c.ctx {
				ctx = httpretry.WithKey(ctx, "order-5")
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader("5 euros"))
			if err != nil {
				t.Fatal(err)
			}
			if c.header {
				r.Header.Set("Idempotency-Key", "order-5")
			}
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			s.judge(t, resp.StatusCode, string(body), err, c.keys)
		})
	}
}

func TestResty(t *testing.T) {
	t.Parallel()
	for name, c := range mounted {
		if c.below {
			continue // resty is not a RoundTripper
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.Inject(testserver.Match{Times: lostReplies}, testserver.CloseReply)
			client := resty.New().SetTransport(s.covered(s.transport)).SetLogger(silent{}).
				SetRetryCount(9).SetRetryWaitTime(time.Millisecond).SetRetryMaxWaitTime(time.Millisecond)
			ctx := t.Context()
			if c.ctx {
				ctx = httpretry.WithKey(ctx, "order-5")
			}
			r := client.R().SetContext(ctx).SetBody(map[string]int{"euros": 5})
			if c.header {
				r.SetHeader("Idempotency-Key", "order-5")
			}
			resp, err := r.Post(s.url)
			s.judge(t, resp.StatusCode(), resp.String(), err, c.keys)
		})
	}

	t.Run("without its own retries", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.Inject(testserver.Match{Times: 2}, testserver.CloseReply)
		client := resty.New().SetTransport(s.covered(s.transport)).SetLogger(silent{})
		_, err := client.R().SetContext(t.Context()).SetBody("5 euros").Post(s.url)
		var unknown *httpretry.UnknownError
		is := errors.As(err, &unknown)
		if !is {
			t.Fatalf("got %v", err)
		}
		resp, err := client.R().SetContext(httpretry.WithKey(t.Context(), unknown.Key)).SetBody("5 euros").Post(s.url)
		s.judge(t, resp.StatusCode(), resp.String(), err, 1)
	})
}

type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}
