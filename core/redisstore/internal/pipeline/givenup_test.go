package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// impatient is a hook that gives up on calls at once, but leaves them in flight. They
// continue when let is closed.
type impatient struct {
	let  chan struct{}
	left sync.WaitGroup
}

var errImpatient = errors.New("too slow")

func (h *impatient) leave(name string, next func() error) error {
	if name != "evalsha" {
		return next()
	}
	h.left.Go(func() {
		<-h.let
		_ = next()
	})
	return errImpatient
}

func (h *impatient) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *impatient) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.leave(cmd.Name(), func() error { return next(context.WithoutCancel(ctx), cmd) })
	}
}

func (h *impatient) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.leave(cmds[0].Name(), func() error { return next(context.WithoutCancel(ctx), cmds) })
	}
}

// TestHook_GaveUp checks a call on which a hook gave up before the call was written.
// Such a call has no effect, even later, and its error reports that it was not sent.
func TestHook_GaveUp(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(t *testing.T, p *pipeline.Pipeline, g *gate, all []string) []error{
		"single calls": func(t *testing.T, p *pipeline.Pipeline, _ *gate, all []string) (errs []error) {
			for _, c := range all {
				_, err := take(t.Context(), p, c)
				errs = append(errs, err)
			}
			return errs
		},
		"single calls and staying caller": func(_ *testing.T, p *pipeline.Pipeline, _ *gate, all []string) (errs []error) {
			for _, c := range all {
				_, err := take(context.Background(), p, c)
				errs = append(errs, err)
			}
			return errs
		},
		"calls together": func(t *testing.T, p *pipeline.Pipeline, g *gate, all []string) []error {
			return crowd(t, p, g, all)
		},
		"by DoAll": func(t *testing.T, p *pipeline.Pipeline, _ *gate, all []string) (errs []error) {
			for _, x := range takeAll(t.Context(), p, all) {
				errs = append(errs, x.Err)
			}
			return errs
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := testserver.NewRedisProxy(t, testserver.StartRedis(t).Addr)
			g, h := newGate(), &impatient{let: make(chan struct{})}
			client := testclient.Redis(t, proxy.Addr, patient)
			if name == "calls together" {
				client.AddHook(g)
			}
			client.AddHook(h)
			p := newPipeline(t, client)
			p.Patient()
			p.Stall(time.Hour)
			for i, err := range call(t, p, g, newKeys(5)) {
				notSent(t, fmt.Sprint("call ", i), err, errImpatient)
			}
			proxy.Forget()
			close(h.let)
			h.left.Wait()
			if n := proxy.Count(testserver.Match{Command: "evalsha"}); n != 0 {
				t.Errorf("got %d calls that were sent after their callers had learned that nothing had changed, want none", n)
			}
		})
	}
}

// TestFailedPipeline_NotUsedAgain checks that no command of a failed pipeline is
// reused, even if it was answered. The command may still be in flight.
func TestFailedPipeline_NotUsedAgain(t *testing.T) {
	client, g, h := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), newGate(), &script{}
	t.Cleanup(func() { client.Close() })
	client.AddHook(g)
	client.AddHook(h)
	p := newPipeline(t, client)
	p.Patient()
	p.Stall(time.Hour)
	seen := make(map[redis.Cmder]bool)
	for round := range 50 {
		g.close()
		h.acts = []func([]redis.Cmder) error{func(cmds []redis.Cmder) error {
			for _, cmd := range cmds {
				if seen[cmd] {
					t.Errorf("round %d: a command of a pipeline that had failed is used again", round)
				}
				seen[cmd] = true
				answer(cmd, "{echo:1}")
			}
			return errImpatient
		}}
		for i, err := range crowd(t, p, g, newKeys(10)) {
			if err != nil {
				t.Fatalf("call %d, which was answered: %v", i, err)
			}
		}
	}
}

// TestHook_GaveUpWithoutError lets a hook return from a pipeline that it still answers.
// The race detector checks that no command is read then.
func TestHook_GaveUpWithoutError(t *testing.T) {
	client, g, h := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), newGate(), &script{}
	t.Cleanup(func() { client.Close() })
	client.AddHook(g)
	client.AddHook(h)
	p := newPipeline(t, client)
	p.Patient()
	p.Stall(time.Hour)
	var late sync.WaitGroup
	h.acts = []func([]redis.Cmder) error{func(cmds []redis.Cmder) error {
		late.Go(func() {
			for _, cmd := range cmds[1:] {
				cmd.(interface{ SetVal(any) }).SetVal(int64(1))
			}
		})
		return nil
	}}
	for i, err := range crowd(t, p, g, newKeys(5)) {
		if err == nil || pipeline.Sent(err) {
			t.Errorf("call %d: got %v, want that it was not sent", i, err)
		}
	}
	late.Wait()
}
