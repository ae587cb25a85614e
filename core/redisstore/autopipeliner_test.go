package redisstore_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestRefusedClients_AutoPipeliner(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	auto, err := client.AutoPipeline()
	if err != nil {
		t.Fatal(err)
	}
	refused(t, auto)
}
