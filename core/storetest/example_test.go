package storetest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
)

// The test of a service checks that nothing is charged while the store is unavailable.
func ExampleFaulty() {
	ctx := context.Background()
	var faults storetest.Faults
	locks, _ := core.New(storetest.Faulty(memstore.New(), &faults))
	defer locks.Close(ctx)
	charge := func() error {
		return locks.Do(ctx, core.Key("order", "42"), func(context.Context) error {
			fmt.Println("charged")
			return nil
		})
	}

	refused := storetest.Fault{Err: fmt.Errorf("connection refused: %w", core.ErrUnavailable)}
	faults.Hook(func(op storetest.Op, _ []store.Claim) storetest.Fault { return refused })
	fmt.Println(errors.Is(charge(), core.ErrUnavailable))

	faults.Hook(nil) // the store answers again
	fmt.Println(charge())
	// Output:
	// true
	// charged
	// <nil>
}
