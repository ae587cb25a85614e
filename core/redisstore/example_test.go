package redisstore_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
)

func Example() {
	server, err := miniredis.Run() // use a real server instead
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	store, err := redisstore.New(client)
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
		_, err := locks.TryAcquire(context.Background(), core.Key("order", "42"))
		fmt.Println("another caller:", err)
		return nil
	})
	fmt.Println("we:", err)
	// Output:
	// another caller: core: acquire "order": lockkit: lock is busy
	// we: <nil>
}

func ExampleWithPlainKeys() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ctx := context.Background()

	// Another program holds the lock as a plain key.
	client.SetNX(ctx, "lock:order:42", "their token", 0)

	store, err := redisstore.New(client, redisstore.WithPlainKeys(), redisstore.WithPrefix("lock:"))
	if err != nil {
		panic(err)
	}
	defer store.Close()
	locks, err := core.New(store)
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	_, err = locks.TryAcquire(ctx, core.Key("order", "42"))
	fmt.Println(err)
	// Output: core: acquire "order": lockkit: lock is busy
}

func ExampleStore_Check() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	store, err := redisstore.New(client)
	if err != nil {
		panic(err)
	}
	defer store.Close()
	fmt.Println(store.Check(context.Background()))
	// Output: <nil>
}
