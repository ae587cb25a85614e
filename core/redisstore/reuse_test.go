package redisstore_test

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

	"github.com/lockkit/lockkit/core/redisstore"
)

// echo is a hook of a client that needs no server: the answer to each call has
// its key in it, and so has the error of one that is not answered. Now and then a
// pipeline breaks, and tells that to calls that were answered long ago too, as
// go-redis does.
type echo struct {
	mu    sync.Mutex
	alone []frame // of calls that travelled alone
	late  atomic.Int64
}

// frame is a context that a client may go on to use, and what it said.
type frame struct {
	ctx   context.Context
	until time.Time
	key   any
}

type ofCall struct{}

// read is the key of a call.
func read(cmd redis.Cmder) string { return *cmd.Args()[3].(*string) }

// answer answers as the scripts do: the token is the number that the key ends with.
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
		h.alone = append(h.alone, frame{ctx, until, ctx.Value(ofCall{})})
		h.mu.Unlock()
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
		// Who was answered goes on meanwhile.
		time.Sleep(time.Duration(rand.N(200)) * time.Microsecond)
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

// Commands are used again. Whatever becomes of a pipeline, each caller hears of its
// own call.
func TestNobodyHearsOfAnothersCall(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*redis.Options){
		"": func(*redis.Options) {}, ", time-outs of the client's": func(o *redis.Options) { o.ContextTimeoutEnabled = true },
	} {
		t.Run("64 callers, some of whom leave"+name, func(t *testing.T) {
			t.Parallel()
			o, h := &redis.Options{Addr: "nobody.invalid:1"}, &echo{}
			edit(o)
			client := redis.NewClient(o)
			client.AddHook(h)
			s, err := redisstore.New(client)
			if err != nil {
				t.Fatal(err)
			}
			s.Crowd(8)
			var answered, failed, gone atomic.Int64
			wrong := make(chan string, 1)
			tell := func(format string, args ...any) {
				select {
				case wrong <- fmt.Sprintf(format, args...):
				default:
				}
			}
			var wg sync.WaitGroup
			for g := range 64 {
				wg.Go(func() {
					for i := range 300 {
						n := 1 + g*1000 + i
						c := claimOf(fmt.Sprintf("echo:%d", n))
						ctx := context.WithValue(context.Background(), ofCall{}, n)
						cancel := func() {}
						if g%4 == 0 {
							ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.N(300))*time.Microsecond)
						}
						got, err := s.Acquire(ctx, c)
						switch {
						case err == nil && got.Token == uint64(n):
							answered.Add(1)
						case err == nil:
							tell("call %d was told the answer to call %d", n, got.Token)
						case ctx.Err() != nil && errors.Is(err, ctx.Err()):
							gone.Add(1)
						case strings.Contains(err.Error(), "{"+c.Key+"}"):
							failed.Add(1)
						default:
							tell("call %d failed with what is not about it: %v", n, err)
						}
						cancel()
					}
				})
			}
			done := make(chan struct{})
			go func() {
				wg.Wait()
				close(done)
			}()
			// A store with such a fault may never close.
			select {
			case <-done:
			case what := <-wrong:
				t.Fatal(what)
			case <-time.After(time.Minute):
				t.Fatal("somebody hears of nothing")
			}
			if len(wrong) > 0 {
				t.Fatal(<-wrong)
			}
			if err := errors.Join(s.Close(), client.Close()); err != nil {
				t.Error(err)
			}
			if answered.Load() < 5000 || failed.Load() < 50 || gone.Load() < 50 || h.late.Load() < 50 {
				t.Errorf("vacuous: %d answered, %d failed, %d left, %d errors came late", answered.Load(), failed.Load(), gone.Load(), h.late.Load())
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, f := range h.alone {
				if until, _ := f.ctx.Deadline(); f.ctx.Value(ofCall{}) != f.key || !until.Equal(f.until) {
					t.Fatalf("a client's context of call %v became that of %v", f.key, f.ctx.Value(ofCall{}))
				}
			}
			if len(h.alone) == 0 {
				t.Error("vacuous: no call travelled alone")
			}
		})
	}
}

// Calls that travel together leave little behind, and no commands.
func TestCommandsAreUsedAgain(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "nobody.invalid:1"})
	t.Cleanup(func() { client.Close() })
	client.AddHook(&steadyEcho{})
	s := newStore(t, client)
	round := func() (bytes uint64) {
		const callers, calls = 64, 200
		var before, after runtime.MemStats
		var wg sync.WaitGroup
		start := make(chan struct{})
		for g := range callers {
			wg.Go(func() {
				c := claimOf(fmt.Sprintf("echo:%d", 1+g))
				<-start
				for range calls {
					if _, err := s.Acquire(context.Background(), c); err != nil {
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
	least := round()
	for range 5 {
		least = min(least, round())
	}
	t.Logf("%d bytes a call", least)
	if size := uint64(redisstore.CommandSize); least > size/2 {
		t.Errorf("%d bytes a call, a command has %d", least, size)
	}
}

// steadyEcho is an echo of which nothing breaks.
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
