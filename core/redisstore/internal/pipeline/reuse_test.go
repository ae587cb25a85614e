package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
)

// echo is a hook that needs no server. The answer to each call is the number in its
// key, and the error of an unanswered call contains the key. Sometimes a pipeline
// breaks. The hook then reports that even to calls that were answered before, like
// go-redis. Sometimes a call alone takes until others wait and a caller has left.
type echo struct {
	census census

	mu    sync.Mutex
	alone []frame       // contexts of calls sent alone
	given []redis.Cmder // commands of pipelines that were given up
	late  atomic.Int64
}

// census counts callers.
type census struct {
	active, calling atomic.Int64 // all callers, and those in a call
	leavers, left   atomic.Int64 // callers that can leave, and calls that were left
}

// gather waits until several calls are waiting and a call was left, or until no caller
// remains that could do so.
func (c *census) gather() {
	left := c.left.Load()
	for c.calling.Load() < min(8, c.active.Load()) || c.left.Load() == left && c.leavers.Load() > 0 {
		time.Sleep(20 * time.Microsecond)
	}
}

// frame is a context that a client may continue to use, with its expected deadline and
// value.
type frame struct {
	ctx   context.Context
	until time.Time
	key   any
	end   <-chan struct{}
}

type ofCall struct{}

func (f *frame) same() (same bool) {
	defer func() { _ = recover() }() // from a context that is not valid any more
	until, _ := f.ctx.Deadline()
	return until.Equal(f.until) && f.ctx.Value(ofCall{}) == f.key
}

// read returns the key of a call.
func read(cmd redis.Cmder) string { return fmt.Sprint(cmd.Args()[3]) }

// answer answers a call with the number at the end of its key.
func answer(cmd redis.Cmder, key string) {
	token := int64(0)
	for _, digit := range key[strings.Index(key, "echo:")+len("echo:") : len(key)-1] {
		token = 10*token + int64(digit-'0')
	}
	cmd.(interface{ SetVal(any) }).SetVal(token)
	cmd.SetErr(nil)
}

func (h *echo) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *echo) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		until, _ := ctx.Deadline()
		h.mu.Lock()
		h.alone = append(h.alone, frame{ctx, until, ctx.Value(ofCall{}), ctx.Done()})
		h.mu.Unlock()
		if rand.N(8) == 0 {
			h.census.gather()
		}
		answer(cmd, read(cmd))
		return nil
	}
}

func (h *echo) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		keys := make([]string, len(cmds))
		for i, cmd := range cmds {
			keys[i] = read(cmd)
		}
		broken := func(i int) error { return fmt.Errorf("broken on the way of %s", keys[i]) }
		breaks, panics := len(cmds), rand.N(20) == 0
		if rand.N(3) == 0 {
			breaks = rand.N(len(cmds))
		}
		for i, cmd := range cmds[:breaks] {
			answer(cmd, keys[i])
		}
		if breaks == len(cmds) {
			return nil
		}
		// Callers that were answered continue in the meantime.
		time.Sleep(time.Duration(rand.N(300)) * time.Microsecond)
		h.mu.Lock()
		h.given = append(h.given, cmds...)
		h.mu.Unlock()
		for i, cmd := range cmds {
			if i >= breaks || cmd.Err() == nil {
				h.late.Add(1)
				cmd.SetErr(broken(i))
			}
		}
		if panics {
			panic("a hook")
		}
		return broken(breaks)
	}
}

// callers runs 64 goroutines that call p, whose hook is h. Some of them leave their
// calls. callers returns the first fault.
func callers(t *testing.T, p *pipeline.Pipeline, h *echo, calls int) (wrong string) {
	var answered, failed, left atomic.Int64
	first := make(chan string, 1)
	fault := func(format string, args ...any) {
		select {
		case first <- fmt.Sprintf(format, args...):
		default:
		}
	}
	h.census.active.Store(64)
	h.census.leavers.Store(16)
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			defer h.census.active.Add(-1)
			if g%4 == 0 {
				defer h.census.leavers.Add(-1)
			}
			for i := range calls {
				n := 1 + g*1000 + i
				c := fmt.Sprintf("{echo:%d}", n)
				ctx := context.WithValue(context.Background(), ofCall{}, n)
				end := func() {}
				if g%4 == 0 {
					ctx, end = context.WithTimeout(ctx, time.Duration(rand.N(300))*time.Microsecond)
				}
				h.census.calling.Add(1)
				got, err := take(ctx, p, c)
				h.census.calling.Add(-1)
				switch {
				case err == nil && got == int64(n):
					answered.Add(1)
				case err == nil:
					fault("call %d got the answer to call %v", n, got)
				case ctx.Err() != nil && errors.Is(err, ctx.Err()):
					left.Add(1)
					h.census.left.Add(1)
				case strings.Contains(err.Error(), c):
					failed.Add(1)
				default:
					fault("call %d failed with another call's error: %v", n, err)
				}
				end()
			}
		})
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case wrong = <-first:
		return wrong
	case <-time.After(time.Minute):
		return "a caller gets no answer"
	}
	select {
	case wrong = <-first:
	default:
	}
	if least := int64(calls) / 6; answered.Load() < 100*least || failed.Load() < least || left.Load() < least {
		t.Errorf("test setup: %d answered, %d failed, %d left", answered.Load(), failed.Load(), left.Load())
	}
	return wrong
}

// TestCall_OwnAnswer checks that each caller gets the answer to its own call, whatever
// happens to a pipeline. Commands are reused.
func TestCall_OwnAnswer(t *testing.T) {
	t.Parallel()
	calls := tally.AllTrials(600)
	for name, edit := range map[string]func(*redis.Options){
		"": func(*redis.Options) {}, " with time-outs": func(o *redis.Options) { o.ContextTimeoutEnabled = true },
	} {
		t.Run("64 callers and some leave"+name, func(t *testing.T) {
			t.Parallel()
			o, h := &redis.Options{Addr: "127.0.0.1:1"}, &echo{}
			edit(o)
			client := redis.NewClient(o)
			client.AddHook(h)
			p := pipeline.New(client)
			p.Patient()
			p.Enough(8)
			if wrong := callers(t, p, h, calls); wrong != "" {
				t.Fatal(wrong) // a faulty Pipeline can fail to close
			}
			// Now the abandoned pipelines are answered, all with one token.
			given, stop := h.given, make(chan struct{})
			var late sync.WaitGroup
			late.Go(func() {
				for {
					for _, cmd := range given {
						select {
						case <-stop:
							return
						default:
							answer(cmd, "{echo:0}")
						}
					}
				}
			})
			wrong := callers(t, p, h, calls)
			close(stop)
			late.Wait()
			if wrong != "" {
				t.Fatal("beside answers that come late: " + wrong)
			}
			p.Close()
			if err := client.Close(); err != nil {
				t.Error(err)
			}
			ends := make(map[<-chan struct{}]bool)
			for _, f := range h.alone {
				if !f.same() {
					t.Fatalf("a client's context of call %v became another one", f.key)
				}
				if f.end != nil && ends[f.end] {
					t.Fatalf("what ends the client's context of call %v has another use", f.key)
				}
				ends[f.end] = true
			}
			if len(h.alone) == 0 || len(given) == 0 || h.late.Load() < int64(calls)/6 {
				t.Errorf("test setup: %d calls alone, %d given up, %d errors came late", len(h.alone), len(given), h.late.Load())
			}
		})
	}
}

// TestCommands_UsedAgain sends calls together, and checks that commands are reused.
func TestCommands_UsedAgain(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { client.Close() })
	client.AddHook(&steadyEcho{})
	p := newPipeline(t, client)
	p.Patient()
	round := func() (bytes uint64) {
		const callers, calls = 64, 200
		var before, after runtime.MemStats
		var wg sync.WaitGroup
		start := make(chan struct{})
		for g := range callers {
			wg.Go(func() {
				c := fmt.Sprintf("{echo:%d}", 1+g)
				<-start
				for range calls {
					if _, err := take(context.Background(), p, c); err != nil {
						t.Error(err)
					}
				}
			})
		}
		runtime.ReadMemStats(&before)
		close(start)
		wg.Wait()
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / (callers * calls)
	}
	// A call that allocates a command leaves more garbage than the command's size. The
	// race detector makes a sync.Pool lose a quarter of its values, and the caller's
	// own bytes are added.
	size, least := uint64(pipeline.CallSize), round()
	for n := 0; least >= size && n < 5; n++ {
		least = min(least, round())
	}
	t.Logf("%d bytes a call", least)
	if least >= size {
		t.Errorf("%d bytes a call, a command has %d", least, size)
	}
}

// steadyEcho is an echo in which nothing breaks.
type steadyEcho struct{ echo }

func (h *steadyEcho) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		answer(cmd, read(cmd))
		return nil
	}
}

func (h *steadyEcho) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			answer(cmd, read(cmd))
		}
		return nil
	}
}
