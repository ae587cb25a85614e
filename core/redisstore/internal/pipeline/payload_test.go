package pipeline_test

import (
	"context"
	"encoding"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// odd is a hook that requests the bytes of calls, or sets their errors, at other times
// than go-redis.
type odd struct {
	before func(cmd redis.Cmder)
	send   func(ctx context.Context, next func() error, later *sync.WaitGroup) error
	later  *sync.WaitGroup // the calls that continue after the hook has returned
}

func (h odd) run(ctx context.Context, cmds []redis.Cmder, next func() error) error {
	if name := cmds[0].Name(); name != "evalsha" && name != "eval" && name != "set" {
		return next()
	}
	if h.before != nil {
		for _, cmd := range cmds {
			h.before(cmd)
		}
	}
	if h.send != nil {
		return h.send(ctx, next, h.later)
	}
	return next()
}

func (odd) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h odd) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.run(ctx, []redis.Cmder{cmd}, func() error { return next(context.WithoutCancel(ctx), cmd) })
	}
}

func (h odd) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.run(ctx, cmds, func() error { return next(context.WithoutCancel(ctx), cmds) })
	}
}

func ask(cmd redis.Cmder) {
	for _, arg := range cmd.Args() {
		if m, ok := arg.(encoding.BinaryMarshaler); ok {
			_, _ = m.MarshalBinary()
		}
	}
}

// TestOnce checks that a call is sent at most once, at whatever time the client
// requests its bytes or sets an error. The call counts as not sent only if it was not
// sent and never will be.
func TestOnce(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	ways := map[string]func(t *testing.T, p *pipeline.Pipeline, g *gate, keys []string) []error{
		"alone": func(t *testing.T, p *pipeline.Pipeline, _ *gate, keys []string) (errs []error) {
			for _, key := range keys {
				_, err := take(t.Context(), p, key)
				errs = append(errs, err)
			}
			return errs
		},
		"together": func(t *testing.T, p *pipeline.Pipeline, g *gate, keys []string) []error { return crowd(t, p, g, keys) },
		"by DoAll": func(t *testing.T, p *pipeline.Pipeline, _ *gate, keys []string) (errs []error) {
			for _, r := range takeAll(t.Context(), p, keys) {
				errs = append(errs, r.Err)
			}
			return errs
		},
		"with a WAIT": func(t *testing.T, p *pipeline.Pipeline, _ *gate, keys []string) (errs []error) {
			for _, key := range keys {
				ctx, cancel := pipeline.Bounded(t.Context())
				_, err := p.Do(ctx, p.SetNX([]byte(key), []byte("value"), 60_000).Timed().Wait(1, time.Millisecond))
				cancel()
				errs = append(errs, err)
			}
			return errs
		},
	}
	for name, h := range map[string]odd{
		"asks early":              {before: ask},
		"asks early and gives up": {before: ask, send: func(context.Context, func() error, *sync.WaitGroup) error { return errImpatient }},
		"sends twice": {send: func(_ context.Context, next func() error, _ *sync.WaitGroup) error {
			return errors.Join(next(), next())
		}},
		"sets an early error":        {before: func(cmd redis.Cmder) { cmd.SetErr(errImpatient) }},
		"sets an early unknown name": {before: func(cmd redis.Cmder) { cmd.SetErr(unknownScript{}) }},
		"sets an early success":      {before: func(cmd redis.Cmder) { cmd.SetErr(nil) }},
		"claims unknown name and sends later": {send: func(ctx context.Context, next func() error, later *sync.WaitGroup) error {
			later.Go(func() {
				<-ctx.Done()
				_ = next()
			})
			return unknownScript{}
		}},
	} {
		for way, call := range ways {
			t.Run(name+" "+way, func(t *testing.T) {
				t.Parallel()
				proxy := testserver.NewRedisProxy(t, server.Addr)
				// From now on the server knows the script.
				mustTake(t, newPatient(t, server.Addr), newKey())
				client, g := testclient.Redis(t, proxy.Addr), newGate()
				if way == "together" {
					client.AddHook(g)
				}
				h := h
				h.later = &sync.WaitGroup{}
				client.AddHook(h)
				p := newPipeline(t, client)
				p.Stall(time.Hour)
				keys := newKeys(5)
				errs := call(t, p, g, keys)
				h.later.Wait()
				for i, err := range errs {
					n := proxy.Count(testserver.Match{Arg: keys[i]})
					if n > 1 || n > 0 && err != nil && !pipeline.Sent(err) {
						t.Errorf("call %d went %d times and got %v, sent: %v", i, n, err, pipeline.Sent(err))
					}
				}
			})
		}
	}
}

// TestReply_LaterFailure checks that a call keeps its reply if its pipeline fails later.
// go-redis reports that failure to all calls of the pipeline.
func TestReply_LaterFailure(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { client.Close() })
	client.AddHook(&script{acts: []func([]redis.Cmder) error{func(cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			answer(cmd, "{echo:1}")
			cmd.SetErr(errImpatient)
		}
		return errImpatient
	}}})
	for i, r := range takeAll(t.Context(), newPipeline(t, client), newKeys(3)) {
		if r.Err != nil || r.Reply != int64(1) {
			t.Errorf("call %d: got %v, %v", i, r.Reply, r.Err)
		}
	}
}
