package pipeline_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestOptionalCalls_ServerDown(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	p := newPipeline(t, testclient.Redis(t, server.Addr))
	mustTake(t, p, newKey())
	server.Kill()
	do := func(c *pipeline.Call) error {
		_, err := p.Do(t.Context(), c)
		if err == nil || pipeline.Sent(err) {
			t.Fatalf("got %v, want an error of what was not sent", err)
		}
		return err
	}
	knownDown := func(err error) bool { return strings.Contains(err.Error(), "known to be down") }
	testserver.Eventually(t, time.Minute, "optional calls are refused", func() bool {
		return knownDown(do(p.SetNX([]byte(newKey()), []byte("value"), 1000).Optional()))
	})
	if err := p.Enter(t.Context()); err == nil || !knownDown(err) {
		t.Errorf("Enter: got %v", err)
	}
	if err := do(p.SetNX([]byte(newKey()), []byte("value"), 1000)); knownDown(err) {
		t.Errorf("a call that is not optional: got %v", err)
	}
	server.Restart()
	testserver.Eventually(t, time.Minute, "a call is answered", func() bool {
		_, err := p.Do(t.Context(), p.SetNX([]byte(newKey()), []byte("value"), 1000).Optional())
		return err == nil
	})
}

func TestReplies(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	p := newPipeline(t, testclient.Redis(t, server.Addr))
	key := []byte(newKey())
	for i, want := range []any{"OK", nil} {
		if got, err := p.Do(t.Context(), p.SetNX(key, []byte("value"), 60_000)); err != nil || got.Reply != want {
			t.Errorf("SET NX, time %d: got %v, %v, want %v", i+1, got, err, want)
		}
	}
	list := newKey()
	server.Do("rpush", list, "of the wrong type")
	_, err := take(t.Context(), p, list)
	if !errors.As(err, new(redis.Error)) || !pipeline.Sent(err) {
		t.Errorf("an error reply: got %v (sent: %v)", err, pipeline.Sent(err))
	}
	ctx, cancel := pipeline.Bounded(t.Context())
	defer cancel()
	got, err := p.Do(ctx, p.Eval(takeScript, []byte(newKey()), "", "acquire").Text("value").Wait(1, time.Millisecond))
	if err != nil || got.Reply != int64(1) || got.Err != nil || got.Replicas != 0 {
		t.Errorf("with WAIT, where there is no replica: got %+v, %v", got, err)
	}
}
