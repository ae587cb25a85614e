package testserver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// The reply to an acquire is lost, so the Locker must ask again.
func Example() {
	_ = func(t *testing.T) { // a test
		server := testserver.StartRedis(t)
		proxy := testserver.NewRedisProxy(t, server.Addr)
		store, err := redisstore.New(testclient.Redis(t, proxy.Addr))
		if err != nil {
			t.Fatal(err)
		}
		locker, err := core.New(store)
		if err != nil {
			t.Fatal(err)
		}
		fault := proxy.Inject(testserver.Match{Script: "acquire"}, testserver.CloseReply)
		if _, err := locker.Acquire(context.Background(), "order:42"); err != nil {
			t.Errorf("a lost reply was not asked for again: %v", err)
		}
		fault.Await(t)
	}
}

// Pause makes a server hang.
func ExampleProcess_Pause() {
	_ = func(t *testing.T) { // a test
		server := testserver.StartPostgres(t, "max_connections = 20")
		store, err := pgstore.New(testclient.Postgres(t, server.URL("pool_max_conns=4")))
		if err != nil {
			t.Fatal(err)
		}
		server.Pause()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := store.Check(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		server.Resume()
	}
}
