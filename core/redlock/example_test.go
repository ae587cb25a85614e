package redlock_test

import (
	"context"
	"fmt"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/redlock"
)

func Example() {
	// In production the nodes are redisstores on three servers that share nothing.
	nodes := []core.Store{memstore.New(), memstore.New(), memstore.New()}
	store, err := redlock.New(nodes, redlock.WithFencing())
	if err != nil {
		panic(err)
	}
	defer store.Close()
	locks, err := core.New(store)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)
	err = locks.Do(ctx, core.Key("order", "42"), func(ctx context.Context) error {
		lease, _ := core.LeaseFromContext(ctx)
		fmt.Println("fenced:", lease.Token() > 0)
		return nil
	}, core.Fenced())
	fmt.Println(err)
	// Output:
	// fenced: true
	// <nil>
}
