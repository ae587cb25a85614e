package testserver_test

import (
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestNet(t *testing.T) {
	t.Parallel()
	sentinel, hosts := testserver.NewNet(t).StartSentinel()
	c := testclient.Redis(t, sentinel.Nodes[1].Addr)
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	hosts[1].Cut()
	if err := c.Ping(brief(t)).Err(); !isTimeout(err) {
		t.Errorf("a host that is cut off: got %v, want a time-out", err)
	}
	hosts[1].Join()
	testserver.Eventually(t, testserver.Settled, "it is there again", func() bool { return c.Ping(brief(t)).Err() == nil })
	sentinel.AwaitOK()
	master := sentinel.Nodes[0]
	hosts[0].Cut()
	if next := sentinel.Without(0).AwaitFailover(master); next == master {
		t.Error("there is no other master")
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	ahead := func(t *testing.T, s *testserver.Redis) time.Duration {
		t.Helper()
		now, err := testclient.Redis(t, s.Addr).Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		return time.Until(now).Round(time.Minute)
	}
	clock := testserver.NewClock(t, 1)
	s, right := clock.StartRedis(), testserver.StartRedis(t)
	for _, step := range []time.Duration{time.Hour, -3 * time.Hour, 2 * time.Hour} {
		clock.Step(step)
		if got, want := ahead(t, s), clock.Ahead().Round(time.Minute); got != want {
			t.Errorf("the server is ahead by %v, want %v", got, want)
		}
	}
	s.Do("SET", "a", "1", "PX", (30 * time.Minute).Milliseconds())
	clock.Step(time.Hour)
	if n := s.Do("EXISTS", "a"); n != int64(0) {
		t.Error("the key has not expired by the server's clock")
	}
	if got := ahead(t, right); got != 0 {
		t.Errorf("another server is ahead by %v", got)
	}
	// At a thousand times the normal speed, a minute passes quickly.
	fast := testserver.NewClock(t, 1000).StartRedis()
	testserver.Eventually(t, 10*time.Second, "the clock gains a minute", func() bool { return ahead(t, fast) >= time.Minute })
}
