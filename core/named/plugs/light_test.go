package plugs_test

import (
	"bytes"
	"context"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/named"
)

// process returns a new Locker, which stands for a separate process.
func process(t *testing.T, store core.Store) *core.Locker {
	t.Helper()
	l, err := core.New(store)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestWatermill(t *testing.T) {
	t.Parallel()
	// If two processes get one message ten times each, it is new only once.
	t.Run("ten times in two processes", func(t *testing.T) {
		t.Parallel()
		store := memstore.New()
		var fresh atomic.Int32
		var all sync.WaitGroup
		for range 2 {
			d := &middleware.Deduplicator{
				KeyFactory: middleware.NewMessageHasherSHA256(1 << 20),
				Repository: named.NewSeen(process(t, store), time.Hour),
				Timeout:    patience,
			}
			for range 10 {
				all.Go(func() {
					duplicate, err := d.IsDuplicate(message.NewMessage("id", []byte("charge order 42")))
					if err != nil {
						t.Error(err)
					}
					if !duplicate {
						fresh.Add(1)
					}
				})
			}
		}
		all.Wait()
		if n := fresh.Load(); n != 1 {
			t.Errorf("got it new %d times", n)
		}
	})
}

func TestFiber(t *testing.T) {
	t.Parallel()
	// If two processes get requests with one key at once, only one request runs.
	t.Run("one key in two processes", func(t *testing.T) {
		t.Parallel()
		store, answers := memstore.New(), &kept{values: map[string][]byte{}}
		var runs atomic.Int32
		var all sync.WaitGroup
		for range 2 {
			app := fiber.New()
			app.Use(idempotency.New(idempotency.Config{
				Lock: named.NewPlain(process(t, store), patience), Storage: answers,
			}))
			app.Post("/", func(c fiber.Ctx) error {
				runs.Add(1)
				time.Sleep(20 * time.Millisecond)
				return c.SendString("charged")
			})
			for range 4 {
				all.Go(func() {
					r := httptest.NewRequest("POST", "/", nil)
					r.Header.Set("X-Idempotency-Key", "00000000-0000-0000-0000-000000000042")
					res, err := app.Test(r, fiber.TestConfig{Timeout: patience})
					if err != nil || res.StatusCode != 200 {
						t.Errorf("got %v, %v", res, err)
						return
					}
					_ = res.Body.Close()
				})
			}
		}
		all.Wait()
		if n := runs.Load(); n != 1 {
			t.Errorf("it ran %d times", n)
		}
	})
}

// kept stores the answers of fiber's middleware, for all processes.
type kept struct {
	mu     sync.Mutex
	values map[string][]byte
}

func (s *kept) Get(key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[key], nil
}

func (s *kept) Set(key string, value []byte, _ time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[key] = bytes.Clone(value)
	return nil
}

func (s *kept) GetWithContext(_ context.Context, key string) ([]byte, error) { return s.Get(key) }

func (s *kept) SetWithContext(_ context.Context, key string, value []byte, exp time.Duration) error {
	return s.Set(key, value, exp)
}

func (s *kept) Delete(string) error                             { return nil }
func (s *kept) DeleteWithContext(context.Context, string) error { return nil }
func (s *kept) Reset() error                                    { return nil }
func (s *kept) ResetWithContext(context.Context) error          { return nil }
func (s *kept) Close() error                                    { return nil }
