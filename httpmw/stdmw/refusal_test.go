package stdmw_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw/stdmw"
)

// TestRefusalElsewhere checks handlers that pay, and respond themselves after an inner
// Lock has refused. Such a run is not withdrawn. It covers hazard 59.
func TestRefusalElsewhere(t *testing.T) {
	t.Parallel()
	// busy serves r to another writer, as a request inside the process.
	busy := func(inner http.Handler, r *http.Request) {
		w := httptest.NewRecorder()
		if inner.ServeHTTP(w, r); w.Code != http.StatusConflict {
			t.Errorf("got %d, want 409", w.Code)
		}
	}
	for name, respond := range map[string]func(inner http.Handler, w http.ResponseWriter, r *http.Request){
		"sub-request with a busy lock": func(inner http.Handler, w http.ResponseWriter, r *http.Request) {
			busy(inner, r)
			w.WriteHeader(http.StatusCreated)
		},
		"attempt read before a sub-request": func(inner http.Handler, w http.ResponseWriter, r *http.Request) {
			once.AttemptFromContext(r.Context())
			busy(inner, r)
			w.WriteHeader(http.StatusCreated)
		},
		"middleware that calls next again": func(inner http.Handler, w http.ResponseWriter, r *http.Request) {
			busy(inner, r)
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }).ServeHTTP(w, r)
		},
		"response before the refusal": func(inner http.Handler, w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusCreated)
			inner.ServeHTTP(w, r)
		},
		"response before an equal refusal": func(inner http.Handler, w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusConflict)
			inner.ServeHTTP(w, r)
		},
		"equal refusal inside another Idempotent": func(inner http.Handler, w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusConflict)
			_, own := newRuns(t)
			stdmw.Idempotent(own, stdmw.AnyCaller())(inner).ServeHTTP(w, r)
		},
		"response before an equal refusal to a wrapper": func(inner http.Handler, w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusConflict)
			inner.ServeHTTP(wrapper{w}, r)
		},
		"own 409 after a sub-request": func(inner http.Handler, w http.ResponseWriter, r *http.Request) {
			busy(inner, r)
			w.WriteHeader(http.StatusConflict)
		},
	} {
		for _, opts := range [][]once.Option{nil, {once.AtMostOnce()}} {
			t.Run(fmt.Sprintf("%s %d options", name, len(opts)), func(t *testing.T) {
				t.Parallel()
				l, o := newRuns(t, opts...)
				held, err := l.TryAcquire(t.Context(), core.Key("mail", "k"))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = held.Release(t.Context()) }()
				paid := 0
				inner := stdmw.Lock(l, "mail", stdmw.Header("Idempotency-Key"))(http.NotFoundHandler())
				keep := stdmw.KeepIf(func(stdmw.Kept) bool { return true })
				h := stdmw.Idempotent(o, stdmw.AnyCaller(), keep)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					paid++
					respond(inner, w, r)
				}))
				first, again := post(h, "k"), post(h, "k")
				if again.Code != first.Code || !replayed(again) || paid != 1 {
					t.Errorf("got %d, then %d %q, replay %v, after %d payments, want a replay after 1", first.Code, again.Code, again.Body, replayed(again), paid)
				}
			})
		}
	}
}

// wrapper is the writer of a middleware that logs the status. It has no Unwrap.
type wrapper struct{ http.ResponseWriter }

// TestRefusalBehindWrapper checks that a refusal withdraws the run although it passes a
// writer without Unwrap.
func TestRefusalBehindWrapper(t *testing.T) {
	t.Parallel()
	l, o := newRuns(t)
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := once.AttemptFromContext(r.Context())
		_, _ = fmt.Fprintf(w, "attempt %d", n)
	})
	locked := stdmw.Lock(l, "tenant", stdmw.Header("X-Tenant"))(pay)
	h := stdmw.Idempotent(o, stdmw.AnyCaller())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		locked.ServeHTTP(wrapper{w}, r)
	}))
	for range 2 {
		if w := post(h, "k"); w.Code != http.StatusBadRequest || replayed(w) {
			t.Errorf("got %d %q, replay %v, want 400 without a replay", w.Code, w.Body, replayed(w))
		}
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("X-Tenant", "9")
	if h.ServeHTTP(w, r); w.Body.String() != "attempt 1" {
		t.Errorf("got %d %q, want attempt 1", w.Code, w.Body)
	}
}

// TestRefusalUnderTwoIdempotents checks that the refusal of a Lock inside two
// Idempotents leaves the key free for another request in both.
func TestRefusalUnderTwoIdempotents(t *testing.T) {
	t.Parallel()
	l, outer := newRuns(t)
	_, inner := newRuns(t)
	held, err := l.TryAcquire(t.Context(), core.Key("mail", "k"))
	if err != nil {
		t.Fatal(err)
	}
	keep := stdmw.KeepIf(func(stdmw.Kept) bool { return true })
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	h = stdmw.Lock(l, "mail", stdmw.Header("Idempotency-Key"))(h)
	h = stdmw.Idempotent(outer, stdmw.AnyCaller(), keep)(stdmw.Idempotent(inner, stdmw.AnyCaller(), keep)(h))
	if w := post(h, "k"); w.Code != http.StatusConflict {
		t.Errorf("got %d, want 409", w.Code)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/another", nil)
	r.Header.Set("Idempotency-Key", "k")
	if h.ServeHTTP(w, r); w.Code != http.StatusCreated {
		t.Errorf("got %d %q, want 201", w.Code, w.Body)
	}
}
