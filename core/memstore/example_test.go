package memstore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
)

// Two Lockers on one store behave like two processes on one server.
func ExampleNew() {
	ctx := context.Background()
	store := memstore.New()
	here, err := core.New(store)
	if err != nil {
		panic(err)
	}
	there, err := core.New(store)
	if err != nil {
		panic(err)
	}
	lease, err := here.Acquire(ctx, "order:42")
	if err != nil {
		panic(err)
	}
	_, err = there.TryAcquire(ctx, "order:42")
	fmt.Println(errors.Is(err, core.ErrBusy))
	if err := lease.Release(ctx); err != nil {
		panic(err)
	}
	err = there.Do(ctx, "order:42", func(context.Context) error {
		fmt.Println("paid")
		return nil
	})
	fmt.Println(err)
	// Output:
	// true
	// paid
	// <nil>
}
