package zkstore_test

import (
	"context"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/zkstore"
)

func Example() {
	// The key of a crashed holder is free when the holder's session has expired.
	servers := []string{"zk1:2181", "zk2:2181", "zk3:2181"}
	conn, _, err := zk.Connect(servers, 15*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	store, err := zkstore.New(conn, zkstore.WithRoot("/shop/locks"))
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close() // before the connection
	locks, err := core.New(store)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background()) // before the store

	err = locks.Do(context.Background(), core.Key("order", "42"), func(ctx context.Context) error {
		lease, _ := core.LeaseFromContext(ctx)
		return ship(ctx, lease.Token()) // ctx is canceled if the lock is lost
	}, core.Wait(5*time.Second), core.Fair())
	if err != nil {
		log.Print(err)
	}
}

// ship writes to a system that refuses a token lower than the last one.
func ship(_ context.Context, _ uint64) error { return nil }
