package cache_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/examples/recipes/cache"
)

type shared struct{ sync.Map }

func (s *shared) Get(_ context.Context, key string) (string, bool) {
	v, ok := s.Load(key)
	value, _ := v.(string)
	return value, ok
}

func (s *shared) Set(_ context.Context, key, value string) { s.Store(key, value) }

type down struct{ store.Store }

func (down) Acquire(context.Context, store.Claim) (store.Grant, error) {
	return store.Grant{}, store.ErrUnavailable
}

func TestGet(t *testing.T) {
	t.Parallel()
	mem, c, fills := memstore.New(), &shared{}, atomic.Int32{}
	var wg sync.WaitGroup
	for range 3 {
		locks, err := core.New(mem)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			wg.Go(func() {
				got, err := cache.Get(t.Context(), locks, c, "rates", func(context.Context) (string, error) {
					fills.Add(1)
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
