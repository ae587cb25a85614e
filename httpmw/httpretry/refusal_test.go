package httpretry_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/httpmw/httpretry"
	"github.com/lockkit/lockkit/httpmw/stdmw"
	"github.com/lockkit/lockkit/retry"
)

// TestRefusals checks the results of requests that stdmw refuses, with and without a
// lost reply to the first try. The test covers hazard 72.
func TestRefusals(t *testing.T) {
	t.Parallel()
	paidBefore := func(t *testing.T, s *shop) {
		t.Helper()
		if got := s.pay(httpretry.WithKey(t.Context(), "k"), s.client(), "5"); got.err != nil || got.status != http.StatusCreated {
			t.Fatalf("test setup: got %v, want a charge", got)
		}
	}
	// events makes the response a stream, which is not stored.
	events := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			next.ServeHTTP(w, r)
			_ = http.NewResponseController(w).Flush()
		})
	}
	dies := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r)
			panic(http.ErrAbortHandler)
		})
	}
	text := func(s string) func() io.Reader { return func() io.Reader { return strings.NewReader(s) } }
	stream := func() io.Reader { return struct{ io.Reader }{strings.NewReader("5 euros")} }
	for name, c := range map[string]struct {
		opts   []once.Option
		inside func(http.Handler) http.Handler
		// first is called before the request is sent.
		first   func(t *testing.T, s *shop)
		key     string
		body    func() io.Reader // nil means the text "5 euros"
		lost    bool             // the reply to the first try is lost
		unnamed bool             // Hosts does not name the shop, which ignores keys
		status  int              // status of the response or of the UnknownError
		unknown bool
		kind    string // kind of the problem in the response
		tries   int
		charges int
	}{
		"422 for mismatch":           {first: paidBefore, key: "k", body: text("6 euros"), status: 422, kind: "idempotency-mismatch", tries: 1, charges: 1},
		"422 after a lost reply":     {first: paidBefore, key: "k", body: text("6 euros"), lost: true, status: 422, unknown: true, tries: 2, charges: 1},
		"410 for unreplayable":       {inside: events, first: paidBefore, key: "k", status: 410, kind: "idempotency-unreplayable", tries: 1, charges: 1},
		"410 after a lost reply":     {inside: events, key: "k", lost: true, status: 410, unknown: true, tries: 2, charges: 1},
		"400 for unexpected key":     {key: `"k`, status: 400, kind: "idempotency-key-invalid", tries: 1},
		"400 after a lost reply":     {key: `"k`, lost: true, status: 400, unknown: true, tries: 2},
		"409 for indeterminate":      {opts: []once.Option{once.AtMostOnce()}, inside: dies, key: "k", status: 409, unknown: true, tries: 2, charges: 1},
		"replay after a lost reply":  {key: "k", lost: true, status: 201, tries: 2, charges: 1},
		"body without GetBody":       {key: "k", body: stream, status: 201, tries: 1, charges: 1},
		"lost reply without GetBody": {key: "k", body: stream, lost: true, unknown: true, tries: 1, charges: 1},
		"lost reply of another host": {key: "k", lost: true, unnamed: true, tries: 1, charges: 1},
		"another key":                {first: paidBefore, key: "other", status: 201, tries: 1, charges: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, !c.unnamed, c.opts...)
			s.inside = c.inside
			if c.first != nil {
				c.first(t, s)
			}
			before := s.Count(testserver.Match{})
			if c.lost {
				s.Inject(testserver.Match{}, testserver.CloseReply)
			}
			body, client, ctx := text("5 euros"), s.client(), t.Context()
			if c.body != nil {
				body = c.body
			}
			if c.key != "" {
				ctx = httpretry.WithKey(ctx, c.key)
			}
			if c.unnamed {
				client.Transport = httpretry.New(s.transport, httpretry.Hosts("pay.example"))
			}
			// On a kept-alive connection that breaks, net/http itself would repeat
			// the request.
			s.transport.CloseIdleConnections()
			got := postTo(ctx, client, s.Addr, "5", body())
			unknown, isUnknown := got.unknown()
			status := got.status
			if isUnknown {
				status = unknown.Status
			}
			if tries := s.Count(testserver.Match{}) - before; isUnknown != c.unknown || status != c.status || tries != c.tries || !strings.Contains(got.body, c.kind) {
				t.Errorf("got %v after %d tries, want %d after %d", got, tries, c.status, c.tries)
			}
			if isUnknown && (unknown.Tries != c.tries || unknown.Key != c.key) {
				t.Errorf("got %d tries under %q, want %d", unknown.Tries, unknown.Key, c.tries)
			}
			if keys := s.keysOf("5"); c.unnamed && !slices.Equal(keys, []string{""}) {
				t.Errorf("got the keys %q, want none", keys)
			}
			if n := s.charged("5"); n != c.charges {
				t.Errorf("got %d charges, want %d", n, c.charges)
			}
		})
	}

	// The lock inside Idempotent is busy, at least for the first try.
	for name, frees := range map[string]bool{"lock-busy then paid": true, "lock-busy to the end": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, true)
			lease, err := s.locks.Acquire(t.Context(), core.Key("order", "5"))
			if err != nil {
				t.Fatal(err)
			}
			lock := stdmw.Lock(s.locks, "order", func(*http.Request) (string, error) { return "5", nil })
			var tries atomic.Int64
			s.inside = func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					lock(next).ServeHTTP(w, r)
					if tries.Add(1) == 1 && frees {
						if err := lease.Release(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			got, charges := s.pay(t.Context(), s.client(httpretry.Retry(retry.Policy{Attempts: 2})), "5"), s.charged("5")
			if frees && (!got.paid("5") || got.replayed || charges != 1) {
				t.Errorf("got %v, charged %d times, want the receipt", got, charges)
			}
			if !frees && (got.err != nil || got.status != http.StatusConflict || !strings.Contains(got.body, "lock-busy") || charges != 0) {
				t.Errorf("got %v, charged %d times, want the refusal", got, charges)
			}
			if !frees {
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if tries.Load() != 2 {
				t.Errorf("got %d tries, want 2", tries.Load())
			}
		})
	}
}
