package httpretry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/httpmw/httpretry"
	"github.com/lockkit/lockkit/httpmw/stdmw"
	"github.com/lockkit/lockkit/retry"
)

// soon is a generous deadline for the operations of these tests.
const soon = time.Minute

// bank counts its charges, by order. The bank is not behind the proxy, so the counts
// are exact.
type bank struct {
	mu      sync.Mutex
	charges map[string]int
	keys    map[string][]string // the different keys of the requests for an order
}

func (b *bank) charge(order string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.charges[order]++
}

func (b *bank) charged(order string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.charges[order]
}

// came records the key of a request for an order.
func (b *bank) came(order, key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.keys[order], key) {
		b.keys[order] = append(b.keys[order], key)
	}
}

func (b *bank) keysOf(order string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.keys[order]
}

// receipt returns the body of the response for an order. The body is longer than the
// response's header, so that half of the reply (CutReply) ends in the body.
func receipt(order string) string { return "receipt " + order + strings.Repeat(".", 4000) }

// shop is a service under stdmw.Idempotent, behind the fault proxy.
type shop struct {
	*bank
	*testserver.Proxy
	transport *http.Transport
	locks     *core.Locker
	// before is called before an order is charged, and can respond instead.
	before func(w http.ResponseWriter, order string) (answered bool)
	inside func(http.Handler) http.Handler
	// outside can respond to a request before Idempotent sees it.
	outside func(w http.ResponseWriter, order string) (answered bool)
}

// newShop starts a shop. guarded makes the shop honor keys.
func newShop(t *testing.T, guarded bool, opts ...once.Option) *shop {
	t.Helper()
	locks, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	runs, err := once.New(locks, opts...)
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{bank: &bank{charges: make(map[string]int), keys: make(map[string][]string)}, transport: &http.Transport{}, locks: locks}
	pay := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		order := strings.TrimPrefix(r.URL.Path, "/pay/")
		if s.before != nil && s.before(w, order) {
			return
		}
		s.charge(order)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, receipt(order))
	}))
	charge := pay
	pay = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.inside != nil {
			s.inside(charge).ServeHTTP(w, r)
			return
		}
		charge.ServeHTTP(w, r)
	})
	if guarded {
		pay = stdmw.Idempotent(runs, stdmw.AnyCaller())(pay)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		order := strings.TrimPrefix(r.URL.Path, "/pay/")
		s.came(order, r.Header.Get("Idempotency-Key"))
		if s.outside != nil && s.outside(w, order) {
			return
		}
		pay.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.Proxy = testserver.NewHTTPProxy(t, server.Listener.Addr().String())
	t.Cleanup(s.transport.CloseIdleConnections)
	return s
}

// client returns a client that covers the shop.
func (s *shop) client(opts ...httpretry.Option) *http.Client {
	all := append([]httpretry.Option{
		httpretry.Hosts(s.Addr), httpretry.Retry(retry.Policy{Initial: 10 * time.Millisecond, Attempts: 6}),
	}, opts...)
	return &http.Client{Transport: httpretry.New(s.transport, all...)}
}

// outcome is the result of an order for its client.
type outcome struct {
	status   int // 0 if err is not nil
	replayed bool
	body     string
	err      error
}

func (o outcome) paid(order string) bool {
	return o.err == nil && o.status == http.StatusCreated && o.body == receipt(order)
}

func (o outcome) unknown() (*httpretry.UnknownError, bool) {
	var unknown *httpretry.UnknownError
	ok := errors.As(o.err, &unknown)
	return unknown, ok
}

func (o outcome) String() string {
	return fmt.Sprintf("%d %.20q (replayed: %v), %v", o.status, o.body, o.replayed, o.err)
}

func (s *shop) pay(ctx context.Context, client *http.Client, order string) outcome {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	return payAt(ctx, client, s.Addr, order)
}

func payAt(ctx context.Context, client *http.Client, addr, order string) outcome {
	return postTo(ctx, client, addr, order, strings.NewReader("5 euros"))
}

func postTo(ctx context.Context, client *http.Client, addr, order string, body io.Reader) (o outcome) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/pay/"+order, body)
	if err != nil {
		return outcome{err: err}
	}
	resp, err := client.Do(r)
	if err != nil {
		return outcome{err: err}
	}
	defer resp.Body.Close()
	o.status, o.replayed = resp.StatusCode, resp.Header.Get("Idempotent-Replayed") == "true"
	text, err := io.ReadAll(resp.Body)
	o.body, o.err = string(text), err
	return o
}
