package named_test

import (
	"context"
	"fmt"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/named"
)

func ExampleNew() {
	l, err := core.New(memstore.New())
	if err != nil {
		panic(err)
	}
	ctx, locks := context.Background(), named.New(l)
	fmt.Println(locks.Lock(ctx, "example.com"))
	fmt.Println(locks.TryLock(ctx, "example.com"))
	fmt.Println(locks.Unlock(ctx, "example.com"))
	// Output:
	// <nil>
	// false <nil>
	// <nil>
}
