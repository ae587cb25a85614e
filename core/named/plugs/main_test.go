package plugs_test

import (
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
)

func TestMain(m *testing.M) {
	if plan := os.Getenv(childEnv); plan != "" {
		os.Exit(work(plan))
	}
	os.Exit(m.Run())
}

// patience limits how long a test waits for an event.
const patience = 60 * time.Second

// onRedis returns a Locker that is never closed, so it lasts as long as its process.
func onRedis(addr string) *core.Locker {
	store, err := redisstore.New(redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1}))
	if err != nil {
		panic(err)
	}
	l, err := core.New(store)
	if err != nil {
		panic(err)
	}
	return l
}
