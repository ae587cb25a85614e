package leader_test

import (
	"context"
	"fmt"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/core/memstore"
)

func ExampleRun() {
	locks, err := core.New(memstore.New())
	if err != nil {
		panic(err)
	}
	err = leader.Run(context.Background(), locks, "reports", func(ctx context.Context) error {
		term, _ := core.LeaseFromContext(ctx)
		fmt.Println("leads with a token:", term.Token() > 0)
		return nil // nil means that the work is done; longer work continues until ctx is done
	})
	fmt.Println(err)
	// Output:
	// leads with a token: true
	// <nil>
}
