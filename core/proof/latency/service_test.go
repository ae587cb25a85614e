package latency_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw/stdmw"
)

// tryHeader is the header with the ID of each request.
const tryHeader = "X-Try"

// lostType is the problem type of a handler that lost its lock before it called the
// bank.
const lostType = "payment-lock-lost"

// replica stands for a process of the payment service.
type replica struct {
	ledger *ledger
	url    string
}

func receipt(order string, n int) string { return fmt.Sprintf("%s/%d", order, n) }

// newReplica starts a replica with its locks in locks and its stored responses in kept.
// locks and kept can be the same store. If kept is nil, no responses are stored.
func newReplica(t testing.TB, l *ledger, locks, kept core.Store) *replica {
	t.Helper()
	r := &replica{ledger: l}
	locker := newLocker(t, locks)
	handler := stdmw.Lock(locker, "order", stdmw.Path("id"))(http.HandlerFunc(r.pay))
	if kept != nil {
		if kept != locks {
			locker = newLocker(t, kept)
		}
		runs, err := once.New(locker)
		if err != nil {
			t.Fatal(err)
		}
		handler = stdmw.Idempotent(runs, stdmw.AnyCaller(), stdmw.Optional())(handler)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", handler)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func newLocker(t testing.TB, s core.Store) *core.Locker {
	t.Helper()
	l, err := core.New(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

// pay handles a request without regard to concurrent requests. It reads the order, waits
// for the bank, charges, and writes the order.
func (r *replica) pay(w http.ResponseWriter, req *http.Request) {
	ctx, order := req.Context(), req.PathValue("id")
	if paid := r.ledger.begin(req.Header.Get(tryHeader), order); paid != "" {
		answer(w, paid)
		return
	}
	select {
	case <-time.After(5*time.Millisecond + rand.N(5*time.Millisecond)):
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // stops before the charge, because the lock is lost
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(w).Encode(map[string]string{"type": lostType})
		return
	}
	receipt := r.ledger.charge(order)
	r.ledger.finish(order, receipt)
	answer(w, receipt)
}

func answer(w http.ResponseWriter, receipt string) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"receipt": receipt})
}
