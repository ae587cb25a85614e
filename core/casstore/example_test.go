package casstore_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/casstore"
)

// shelf is a place in memory. README.md has one in a database.
type shelf struct {
	mu      sync.Mutex
	entries map[string]casstore.Entry
}

// Load implements casstore.Place. It reads the place's own time.
func (s *shelf) Load(_ context.Context, key string, _ casstore.Want) (casstore.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	e.Now = time.Now()
	return e, nil
}

// Save implements casstore.Place. It compares and writes in one step.
func (s *shelf) Save(_ context.Context, key string, old, e casstore.Entry) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.entries[key]
	if now.Version != old.Version {
		return false, nil
	}
	if e.KeepValue {
		e.Value, e.KeepValue = now.Value, false
	}
	s.entries[key] = e
	return true, nil
}

// Two stores on one place behave like two processes on one database.
func Example() {
	ctx := context.Background()
	place := &shelf{entries: make(map[string]casstore.Entry)}
	var processes [2]*core.Locker
	for i := range processes {
		store, err := casstore.New(place)
		if err != nil {
			panic(err)
		}
		defer store.Close()
		if processes[i], err = core.New(store); err != nil {
			panic(err)
		}
		defer processes[i].Close(ctx) // before the store
	}
	key := core.Key("order", "42")
	err := processes[0].Do(ctx, key, func(ctx context.Context) error {
		lease, _ := core.LeaseFromContext(ctx)
		_, err := processes[1].TryAcquire(context.Background(), key)
		fmt.Println("fenced:", lease.Token() > 0)
		fmt.Println("another process:", err)
		return nil
	}, core.Fenced())
	fmt.Println("we:", err)
	// Output:
	// fenced: true
	// another process: order: lock is busy
	// we: <nil>
}
