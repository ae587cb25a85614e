package cache_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/examples/recipes/cache"
)

// fillerOf names an environment variable. If the variable has the server's address, the
// test's program becomes a process that hangs in its fill.
const fillerOf = "CACHE_PROCESS"

func TestMain(m *testing.M) {
	addr := os.Getenv(fillerOf)
	if addr == "" {
		os.Exit(m.Run())
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	_, err := get(client, func(ctx context.Context) (string, error) {
		client.Incr(ctx, "fills")
		select {}
	})
	panic(err)
}

// inRedis is a cache in Redis that all processes share.
type inRedis struct{ *redis.Client }

func (c inRedis) Get(ctx context.Context, key string) (string, bool) {
	value, err := c.Client.Get(ctx, "cached:"+key).Result()
	return value, err == nil
}

func (c inRedis) Set(ctx context.Context, key, value string) {
	c.Client.Set(ctx, "cached:"+key, value, time.Hour)
}

func get(client *redis.Client, fill func(context.Context) (string, error)) (string, error) {
	store, err := redisstore.New(client)
	if err != nil {
		return "", err
	}
	locks, err := core.New(store)
	if err != nil {
		return "", err
	}
	defer func() { _ = locks.Close(context.Background()) }()
	return cache.Get(context.Background(), locks, inRedis{client}, "rates", fill)
}

// TestGet_FillerKilled kills a process during its fill. The waiting callers then fill
// once, before they give up.
func TestGet_FillerKilled(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := testclient.Redis(t, server.Addr)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fillerOf+"="+server.Addr)
	child := testserver.StartProcess(t, cmd)
	testserver.Eventually(t, time.Minute, "the fill has begun", func() bool { return client.Get(t.Context(), "fills").Val() == "1" })
	child.Kill()
	answers := make(chan error, 2)
	for range cap(answers) {
		go func() {
			value, err := get(client, func(ctx context.Context) (string, error) { return "1.07", client.Incr(ctx, "fills").Err() })
			if value != "1.07" {
				t.Errorf("got %q, %v", value, err)
			}
			answers <- err
		}()
	}
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if fills := client.Get(t.Context(), "fills").Val(); fills != "2" {
		t.Errorf("%s fills have begun, want that of the killed process and one more", fills)
	}
}
