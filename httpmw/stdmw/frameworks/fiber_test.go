package frameworks_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
)

// ship is a handler under a lock.
func ship(locks *core.Locker, shipment func(ctx context.Context, id string) error) fiber.Handler {
	return func(c fiber.Ctx) error {
		id := strings.Clone(c.Params("id")) // Fiber uses its bytes again for the next request
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

// charge is a handler whose response is stored.
func charge(runs *once.Once, account func(fiber.Ctx) string, provider func(ctx context.Context, body []byte) ([]byte, error)) fiber.Handler {
	return func(c fiber.Ctx) error {
		body := append([]byte(nil), c.Body()...)
		sum := sha256.Sum256(body)
		call := once.Call{Name: "charge", Scope: strings.Clone(account(c)), Key: strings.Clone(c.Get("Idempotency-Key")), Fingerprint: sum[:]}
		out, err := runs.Do(c.Context(), call, func(ctx context.Context) (once.Answer, error) {
			receipt, err := provider(ctx, body)
			return once.Answer{Value: receipt}, err
		})
		if err != nil {
			return refused(c, err)
		}
		return c.Status(fiber.StatusCreated).Send(out.Value)
	}
}

// refused responds to a request that did not run. Other errors are the handler's own.
func refused(c fiber.Ctx, err error) error {
	var busy *core.BusyError
	switch {
	case errors.As(err, &busy): // once.ErrInProgress too
		c.Set(fiber.HeaderRetryAfter, strconv.Itoa(max(1, int(math.Ceil(min(busy.RetryAfter, time.Second).Seconds())))))
		return c.SendStatus(fiber.StatusConflict)
	case errors.Is(err, once.ErrMismatch):
		return c.SendStatus(fiber.StatusUnprocessableEntity)
	case errors.Is(err, once.ErrIndeterminate):
		return c.SendStatus(fiber.StatusConflict)
	case errors.Is(err, core.ErrInvalid): // the key is missing or not allowed
		return c.SendStatus(fiber.StatusBadRequest)
	case errors.Is(err, core.ErrUnavailable), errors.Is(err, core.ErrClosed):
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
	if got := post("/orders/5/ship", "", ""); got != "503  Service Unavailable" {
		t.Errorf("got %q of a closed locker", got)
	}
}

// TestREADME compares the functions in README.md with those of the tests.
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
