package stdmw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw"
	"github.com/lockkit/lockkit/httpmw/stdmw"
)

// newRuns returns a Locker and its Once, with a separate store.
func newRuns(t *testing.T, opts ...once.Option) (*core.Locker, *once.Once) {
	t.Helper()
	l, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	o, err := once.New(l, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l, o
}

func post(h http.Handler, key string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Idempotency-Key", key)
	h.ServeHTTP(w, r)
	return w
}

func replayed(w *httptest.ResponseRecorder) bool {
	return w.Header().Get("Idempotent-Replayed") == "true"
}

func TestWriter(t *testing.T) {
	t.Parallel()

	t.Run("under a Lock", func(t *testing.T) {
		t.Parallel()
		l, _ := newRuns(t)
		given := httptest.NewRecorder()
		lock := stdmw.Lock(l, "order", stdmw.Query("id"))
		lock(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if w != http.ResponseWriter(given) {
				t.Errorf("it is a %T", w)
			}
		})).ServeHTTP(given, httptest.NewRequest(http.MethodPost, "/?id=5", nil))
	})

	t.Run("abilities of the outer writer", func(t *testing.T) {
		t.Parallel()
		_, o := newRuns(t)
		h := http.TimeoutHandler(stdmw.Idempotent(o, stdmw.AnyCaller())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			c := http.NewResponseController(w)
			_, _, hijack := c.Hijack()
			for what, err := range map[string]error{"flush": c.Flush(), "hijack": hijack, "push": w.(http.Pusher).Push("/", nil)} {
				if !errors.Is(err, http.ErrNotSupported) {
					t.Errorf("%s: got %v", what, err)
				}
			}
			_, _ = io.WriteString(w, "paid")
		})), time.Hour, "")
		if first, again := post(h, "k"), post(h, "k"); first.Body.String() != "paid" || again.Body.String() != "paid" || !replayed(again) {
			t.Errorf("got %q, then %q", first.Body, again.Body)
		}
	})

	t.Run("first status and bad status", func(t *testing.T) {
		t.Parallel()
		_, o := newRuns(t)
		h := stdmw.Idempotent(o, stdmw.AnyCaller())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Idempotency-Key") == "none" {
				w.WriteHeader(99)
			}
			w.WriteHeader(http.StatusCreated)
			w.Header().Set("Location", "/late")
			w.WriteHeader(http.StatusAccepted)
			w.WriteHeader(http.StatusEarlyHints)
		}))
		for range 2 {
			if w := post(h, "k"); w.Code != http.StatusCreated || w.Result().Header.Get("Location") != "" {
				t.Errorf("got %d %v", w.Code, w.Result().Header)
			}
		}
		defer func() {
			if recover() == nil {
				t.Error("it did not panic")
			}
		}()
		post(h, "none")
	})
}

func TestError(t *testing.T) {
	t.Parallel()
	stdmw.Error(context.Background(), errors.New("heard by nobody"))

	t.Run("unknown outcome is not run again", func(t *testing.T) {
		t.Parallel()
		l, o := newRuns(t, once.AtMostOnce())
		runs := 0
		lock := stdmw.Lock(l, "order", stdmw.Header("Idempotency-Key"))
		h := stdmw.Idempotent(o, stdmw.AnyCaller())(lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			stdmw.Error(r.Context(), fmt.Errorf("bank: %w", once.ErrIndeterminate))
			w.WriteHeader(http.StatusBadGateway)
		})))
		if w := post(h, "k"); w.Code != http.StatusBadGateway {
			t.Errorf("got %d", w.Code)
		}
		if w := post(h, "k"); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "idempotency-indeterminate") || runs != 1 {
			t.Errorf("got %d %s after %d runs", w.Code, w.Body, runs)
		}
	})

	t.Run("OnError", func(t *testing.T) {
		t.Parallel()
		l, _ := newRuns(t)
		secret := errors.New("no session of alice")
		var heard error
		h := stdmw.Lock(l, "order", func(*http.Request) (string, error) { return "", secret },
			stdmw.OnError(func(_ *http.Request, err error) { heard = err }))(http.NotFoundHandler())
		if w := post(h, "k"); w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "alice") || !errors.Is(heard, secret) {
			t.Errorf("got %d %s, and heard %v", w.Code, w.Body, heard)
		}
	})
}

// TestAnswersOfGin checks that a service that moves from gin to net/http replays its
// earlier responses.
func TestAnswersOfGin(t *testing.T) {
	t.Parallel()
	_, o := newRuns(t)
	engine := gin.New()
	engine.POST("/", httpmw.Idempotent(o, httpmw.AnyCaller()), func(c *gin.Context) {
		if c.GetHeader("Idempotency-Key") == "status" {
			c.Status(http.StatusAccepted)
			return
		}
		c.JSON(http.StatusCreated, gin.H{"receipt": 1})
	})
	h := stdmw.Idempotent(o, stdmw.AnyCaller())(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it ran") }))
	for _, key := range []string{"json", "status"} {
		first, again := post(engine, key), post(h, key)
		if again.Code != first.Code || again.Body.String() != first.Body.String() || !replayed(again) || again.Header().Get("Content-Type") != first.Header().Get("Content-Type") {
			t.Errorf("got %d %q, then %d %q", first.Code, first.Body, again.Code, again.Body)
		}
	}
}

func TestBadHandler(t *testing.T) {
	t.Parallel()
	l, o := newRuns(t)
	for name, middleware := range map[string]func(http.Handler) http.Handler{
		"Lock": stdmw.Lock(l, "order", stdmw.Path("id")), "Idempotent": stdmw.Idempotent(o, stdmw.AnyCaller()),
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s takes no handler", name)
				}
			}()
			middleware(nil)
		}()
	}
}

// TestPath checks two responses. An empty parameter is the client's mistake (400). A
// parameter that the route does not have is the program's mistake (500).
func TestPath(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]int{
		"POST /files/{path...}": http.StatusBadRequest, "/files/{path:.*}": http.StatusBadRequest, "/{path}/x": http.StatusBadRequest,
		"/files/{pathname}": http.StatusInternalServerError, "/path": http.StatusInternalServerError, "": http.StatusInternalServerError,
	} {
		l, _ := newRuns(t)
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/files/", nil)
		r.Pattern = pattern
		stdmw.Lock(l, "file", stdmw.Path("path"))(http.NotFoundHandler()).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%q: got %d, want %d", pattern, w.Code, want)
		}
	}
}
