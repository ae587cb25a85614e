package frameworks_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/store"
)

// ship returns a handler that runs under a lock.
func ship(locks *core.Locker, shipment func(ctx context.Context, id string) error) fiber.Handler {
	return func(c fiber.Ctx) error {
		id := strings.Clone(c.Params("id")) // Fiber reuses the bytes of c for the next request
		lease, err := locks.TryAcquire(c.Context(), core.Key("order", id))
		if err != nil {
			return refused(c, err)
		}
		defer func() { _ = lease.Release(context.WithoutCancel(c.Context())) }()
		if err := shipment(lease.Context(), id); err != nil {
			return err
		}
		return c.SendStatus(fiber.StatusNoContent)
	}
}

// charge returns a handler whose response is stored.
func charge(runs *once.Once, account func(fiber.Ctx) string, provider func(ctx context.Context, body []byte) ([]byte, error)) fiber.Handler {
	return func(c fiber.Ctx) error {
		body := append([]byte(nil), c.Body()...)
		sum := sha256.Sum256(body)
		call := once.Call{Name: "charge", Scope: strings.Clone(account(c)), Key: strings.Clone(c.Get("Idempotency-Key")), Fingerprint: sum[:]}
		out, err := runs.Do(c.Context(), call, func(ctx context.Context) (once.Answer, error) {
			receipt, err := provider(ctx, body)
			return once.Answer{Value: receipt}, err
		})
		// With a value, the charge was made and its response could not be stored.
		if err != nil && out.Value == nil {
			return refused(c, err)
		}
		if out.Replayed {
			c.Set("Idempotent-Replayed", "true")
		}
		return c.Status(fiber.StatusCreated).Send(out.Value)
	}
}

// refused responds to a request that did not run. It returns the handler's own errors.
func refused(c fiber.Ctx, err error) error {
	var busy *core.BusyError
	switch {
	case errors.As(err, &busy): // includes once.ErrInProgress
		c.Set(fiber.HeaderRetryAfter, strconv.Itoa(max(1, int(math.Ceil(min(busy.RetryAfter, time.Second).Seconds())))))
		return c.SendStatus(fiber.StatusConflict)
	case errors.Is(err, once.ErrMismatch):
		return c.SendStatus(fiber.StatusUnprocessableEntity)
	case errors.Is(err, once.ErrIndeterminate): // without Retry-After: the request is not run again
		return c.SendStatus(fiber.StatusConflict)
	case errors.Is(err, once.ErrUnreplayable):
		return c.SendStatus(fiber.StatusGone)
	case errors.Is(err, core.ErrInvalid): // the key is missing or not allowed
		return c.SendStatus(fiber.StatusBadRequest)
	case errors.Is(err, core.ErrUnavailable), errors.Is(err, core.ErrClosed):
		c.Set(fiber.HeaderRetryAfter, "1")
		return c.SendStatus(fiber.StatusServiceUnavailable)
	}
	return err
}

func TestFiber(t *testing.T) {
	t.Parallel()
	locks, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	runs, err := once.New(locks)
	if err != nil {
		t.Fatal(err)
	}
	app, charged, shipped := fiber.New(), 0, 0
	app.Post("/orders/:id/ship", ship(locks, func(ctx context.Context, id string) error {
		lease, ok := core.LeaseFromContext(ctx)
		if !ok || lease.Key() != core.Key("order", id) {
			t.Errorf("got no lease of %q", id)
		}
		shipped++
		return nil
	}))
	account := func(c fiber.Ctx) string { return c.Get("Account") }
	app.Post("/charges", charge(runs, account, func(_ context.Context, body []byte) ([]byte, error) {
		if string(body) == "declined" {
			return nil, fiber.NewError(fiber.StatusPaymentRequired, "declined")
		}
		charged++
		return append([]byte("receipt "+strconv.Itoa(charged)+" of "), body...), nil
	}))
	post := func(path, key, body string) string {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("Account", "acme")
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		w, err := app.Test(r, fiber.TestConfig{Timeout: 20 * time.Second})
		if err != nil {
			t.Error(err)
			return ""
		}
		text, err := io.ReadAll(w.Body)
		if err != nil {
			t.Error(err)
		}
		return strings.TrimSpace(strconv.Itoa(w.StatusCode) + " " + w.Header.Get("Retry-After") + " " + string(text))
	}
	lease, err := locks.Acquire(t.Context(), core.Key("order", "7"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, key, body, want string }{
		{"/orders/5/ship", "", "", "204"},
		{"/orders/5/ship", "", "", "204"},
		{"/orders/7/ship", "", "", "409 1 Conflict"},
		{"/charges", "k", "10", "201  receipt 1 of 10"},
		{"/charges", "k", "10", "201  receipt 1 of 10"},
		{"/charges", "k", "11", "422  Unprocessable Entity"},
		{"/charges", "", "10", "400  Bad Request"},
		{"/charges", "d", "declined", "402  declined"},
		{"/charges", "d", "declined", "402  declined"},
	} {
		if got := post(c.path, c.key, c.body); got != c.want {
			t.Errorf("%s %s %s: got %q, want %q", c.path, c.key, c.body, got, c.want)
		}
	}
	if charged != 1 || shipped != 2 {
		t.Errorf("got %d charges and %d shipments, want 1 and 2", charged, shipped)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := locks.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := post("/orders/5/ship", "", ""); got != "503 1 Service Unavailable" {
		t.Errorf("got %q of a closed locker", got)
	}
}

// outage is a store that is unavailable while down is true.
type outage struct {
	store.Store
	down atomic.Bool
}

func (o *outage) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if o.down.Load() {
		return store.Grant{}, store.ErrUnavailable
	}
	return o.Store.Acquire(ctx, c)
}

func (o *outage) Release(ctx context.Context, c store.Claim) error {
	if o.down.Load() {
		return store.ErrUnavailable
	}
	return o.Store.Release(ctx, c)
}

// TestFiber_Listener checks the responses of a real server to failing requests.
func TestFiber_Listener(t *testing.T) {
	t.Parallel()
	s := &outage{Store: memstore.New()}
	locks, err := core.New(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	runs, err := once.New(locks, once.AtMostOnce())
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	app.Post("/orders/:id/ship", ship(locks, func(context.Context, string) error { return nil }))
	ran := map[string]int{}
	provider := func(_ context.Context, body []byte) ([]byte, error) {
		text := string(body)
		ran[text]++
		switch text {
		case "not known":
			return nil, errors.Join(errors.New("the bank timed out"), once.ErrIndeterminate)
		case "too long":
			return make([]byte, 33<<20), nil
		case "down meanwhile":
			s.down.Store(true)
		}
		return []byte("receipt of " + text), nil
	}
	app.Post("/charges", charge(runs, func(fiber.Ctx) string { return "acme" }, provider))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		if err := errors.Join(app.Shutdown(), <-done); err != nil {
			t.Error(err)
		}
	})
	post := func(path, body string) string {
		r, err := http.NewRequest(http.MethodPost, "http://"+listener.Addr().String()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", strings.ReplaceAll(body, " ", "-"))
		w, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Body.Close()
		text, err := io.ReadAll(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 100 {
			text = []byte("much")
		}
		return strings.Join([]string{strconv.Itoa(w.StatusCode), w.Header.Get("Retry-After"), w.Header.Get("Idempotent-Replayed"), string(text)}, "|")
	}
	expect := func(path, body, want string) {
		t.Helper()
		if got := post(path, body); got != want {
			t.Errorf("%s %s: got %s, want %s", path, body, got, want)
		}
	}
	expect("/charges", "ten", "201|||receipt of ten")
	expect("/charges", "ten", "201||true|receipt of ten")
	for range 2 {
		expect("/charges", "not known", "409|||Conflict") // without Retry-After: not run again
	}
	expect("/charges", "too long", "201|||much")
	expect("/charges", "too long", "410|||Gone")

	s.down.Store(true)
	expect("/orders/5/ship", "", "503|1||Service Unavailable")
	expect("/charges", "ten", "503|1||Service Unavailable")
	expect("/charges", "twenty", "503|1||Service Unavailable")
	s.down.Store(false)
	expect("/orders/5/ship", "", "204|||")

	// If a charge was made and its response cannot be stored, the client gets the
	// response.
	expect("/charges", "down meanwhile", "201|||receipt of down meanwhile")
	s.down.Store(false)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		got := post("/charges", "down meanwhile")
		if got == "201||true|receipt of down meanwhile" {
			break
		}
		if !strings.HasPrefix(got, "409|1|") || time.Now().After(deadline) {
			t.Fatalf("got %s, want the stored response, or 409 until it is stored", got)
		}
	}
	for body, want := range map[string]int{"ten": 1, "not known": 1, "too long": 1, "twenty": 0, "down meanwhile": 1} {
		if ran[body] != want {
			t.Errorf("%s: ran %d times, want %d", body, ran[body], want)
		}
	}
}

// TestREADME checks that the tests contain each block of Go code of README.md.
func TestREADME(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var have strings.Builder
	for _, name := range []string{"fiber_test.go", "frameworks_test.go", "echo5_test.go", "hertz_test.go", "huma_test.go", "kratos_test.go"} {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		have.Write(source)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, b := range blocks {
		if !strings.Contains(have.String(), b[1]) {
			t.Errorf("README.md has code which is not tested:\n%s", b[1])
		}
	}
	if len(blocks) < 3 {
		t.Errorf("README.md has %d blocks of code", len(blocks))
	}
}
