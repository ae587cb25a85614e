package pipeline_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
)

// copier is a hook that keeps a copy of every call, like a hook that sends a copy of a
// slow call.
type copier struct {
	echo
	copies map[redis.Cmder]string
}

func (h *copier) take(cmds ...redis.Cmder) error {
	for _, cmd := range cmds {
		h.copies[cmd.Clone()] = read(cmd)
		answer(cmd, "{echo:1}")
	}
	return nil
}

func (h *copier) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return h.take(cmd) }
}

func (h *copier) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error { return h.take(cmds...) }
}

func TestCopy_OfItsCall(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { client.Close() })
	h := &copier{copies: make(map[redis.Cmder]string)}
	client.AddHook(h)
	p := newPipeline(t, client)
	p.Patient()
	for range 100 {
		if _, err := take(t.Context(), p, newKey()); err != nil {
			t.Fatal(err)
		}
		for i, x := range takeAll(t.Context(), p, newKeys(3)) {
			if x.Err != nil {
				t.Errorf("call %d: %v", i, x.Err)
			}
		}
	}
	if len(h.copies) != 400 {
		t.Errorf("%d copies, want 400", len(h.copies))
	}
	for c, want := range h.copies {
		if got := read(c); got != want {
			t.Fatalf("the copy of a call about %s is about %s now", want, got)
		}
	}
}
