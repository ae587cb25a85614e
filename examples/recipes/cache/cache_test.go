package cache_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/examples/recipes/cache"
)

// shared is a cache in memory. missed is called for each miss, unless it is nil.
type shared struct {
	sync.Map
	missed func()
}

func (s *shared) Get(_ context.Context, key string) (string, bool) {
	v, ok := s.Load(key)
	if !ok && s.missed != nil {
		s.missed()
	}
	value, _ := v.(string)
	return value, ok
}

func (s *shared) Set(_ context.Context, key, value string) { s.Store(key, value) }

type down struct{ store.Store }

func (down) Acquire(context.Context, store.Claim) (store.Grant, error) {
	return store.Grant{}, store.ErrUnavailable
}

// TestGet checks callers that have all missed the entry before the first fill ends.
func TestGet(t *testing.T) {
	t.Parallel()
	mem, misses, fills := memstore.New(), atomic.Int32{}, atomic.Int32{}
	var wg sync.WaitGroup
	// It is closed after 31 misses: the 30 callers, and the first caller again.
	missed := make(chan struct{})
	c := &shared{missed: func() {
		if misses.Add(1) == 31 {
			close(missed)
		}
	}}
	for range 3 {
		locks, err := core.New(mem)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			wg.Go(func() {
				got, err := cache.Get(t.Context(), locks, c, "rates", func(context.Context) (string, error) {
					fills.Add(1)
					<-missed
					return "1.07", nil
				})
				if got != "1.07" || err != nil {
					t.Errorf("got %q, %v", got, err)
				}
			})
		}
	}
	wg.Wait()
	if n := fills.Load(); n != 1 {
		t.Errorf("filled %d times, want once", n)
	}
}

func TestGetWithoutStore(t *testing.T) {
	t.Parallel()
	locks, err := core.New(down{memstore.New()})
	if err != nil {
		t.Fatal(err)
	}
	got, err := cache.Get(t.Context(), locks, &shared{}, "rates", func(context.Context) (string, error) { return "1.07", nil })
	if got != "1.07" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// lost is a store whose claims cannot be extended.
type lost struct{ store.Store }

func (lost) Extend(_ context.Context, claims []store.Claim) []store.Extension {
	out := make([]store.Extension, len(claims))
	for i := range out {
		out[i].Err = store.ErrLost
	}
	return out
}

// TestGet_LockLost checks that a fill is canceled when its lock is lost.
func TestGet_LockLost(t *testing.T) {
	t.Parallel()
	locks, err := core.New(lost{memstore.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = cache.Get(ctx, locks, &shared{}, "rates", func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	if !errors.Is(err, core.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}
