package testserver_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestRedis(t *testing.T) {
	t.Parallel()
	// A paused server does not answer, and continues after Resume with its state.
	t.Run("paused server", func(t *testing.T) {
		t.Parallel()
		s := testserver.StartRedis(t)
		c := testclient.Redis(t, s.Addr)
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		s.Pause()
		if err := c.Set(brief(t), "a", "1", 0).Err(); !isTimeout(err) {
			t.Errorf("got %v, want a time-out", err)
		}
		s.Resume()
		testserver.Eventually(t, 10*time.Second, "the command was done", func() bool {
			return c.Get(t.Context(), "a").Val() == "1"
		})
	})
	t.Run("killed server", func(t *testing.T) {
		t.Parallel()
		s := testserver.StartRedis(t)
		c := testclient.Redis(t, s.Addr)
		s.Kill()
		if err := c.Ping(t.Context()).Err(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("got %v, want a refused connection", err)
		}
	})
	// A server with an append-only file has its data after Restart, and none after
	// RestartEmpty.
	t.Run("restarted server", func(t *testing.T) {
		t.Parallel()
		s := testserver.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
		c := testclient.Redis(t, s.Addr)
		if err := c.Set(t.Context(), "a", "1", 0).Err(); err != nil {
			t.Fatal(err)
		}
		s.Restart()
		if v, err := c.Get(t.Context(), "a").Result(); v != "1" {
			t.Errorf("got %q, %v after a restart, want 1", v, err)
		}
		s.RestartEmpty()
		if err := c.Get(t.Context(), "a").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("got %v after an empty restart, want nothing", err)
		}
	})
	t.Run("arguments reach the server", func(t *testing.T) {
		t.Parallel()
		s := testserver.StartRedis(t, "--maxmemory", "3mb")
		if v, _ := s.Do("CONFIG", "GET", "maxmemory").(map[any]any); v["maxmemory"] != "3145728" {
			t.Errorf("maxmemory is %v", v)
		}
		if s.Pid() == 0 || s.Port() == 0 {
			t.Error("no pid or port")
		}
	})
}
