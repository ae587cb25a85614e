package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestCalls_Together(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	setup := func(t *testing.T, addr string) (*pipeline.Pipeline, *gate) {
		client, g := testclient.Redis(t, addr, patient), newGate()
		client.AddHook(g)
		// With these settings there is only one worker, however long it is delayed.
		p := newPipeline(t, client)
		p.Patient()
		p.Stall(time.Hour)
		p.Enough(math.MaxInt)
		return p, g
	}
	t.Run("one pipeline with own answers", func(t *testing.T) {
		t.Parallel()
		p, g := setup(t, server.Addr)
		all := newKeys(40)
		// From now on the server knows the script.
		mustTake(t, newPatient(t, server.Addr), newKey())
		server.Do("set", all[3], "another's")
		server.Do("rpush", all[5], "of the wrong type")
		for i, err := range crowd(t, p, g, all) {
			reply := errors.As(err, new(redis.Error))
			switch {
			case i == 3 && !errors.Is(err, errTaken), i == 5 && !reply, i != 3 && i != 5 && err != nil:
				t.Errorf("call %d: got %v", i, err)
			}
		}
		if got := fmt.Sprint(g.sent()); got != "[1 40]" {
			t.Errorf("calls went as %s, want the first one alone and then all others", got)
		}
	})
	t.Run("crowd on a second connection", func(t *testing.T) {
		t.Parallel()
		client, g := testclient.Redis(t, server.Addr, patient), newGate()
		client.AddHook(g)
		p := newPipeline(t, client)
		p.Patient()
		p.Stall(time.Hour)
		p.Enough(16)
		// From now on the server knows the script.
		mustTake(t, newPatient(t, server.Addr), newKey())
		var wg sync.WaitGroup
		send := func(n int) {
			for _, c := range newKeys(n) {
				wg.Go(func() {
					if _, err := take(t.Context(), p, c); err != nil {
						t.Error(err)
					}
				})
			}
		}
		send(1)
		<-g.took // the first call is delayed
		send(15)
		testserver.Eventually(t, time.Minute, "fifteen wait", func() bool { return p.Queued() == 15 })
		send(1)
		testserver.Eventually(t, time.Minute, "sixteen have gone", func() bool { return p.Queued() == 0 })
		close(g.open)
		wg.Wait()
		if got := fmt.Sprint(g.sent()); got != "[1 16]" {
			t.Errorf("calls went as %s, want the first one alone and sixteen together", got)
		}
	})
	t.Run("several pipelines", func(t *testing.T) {
		t.Parallel()
		p, g := setup(t, server.Addr)
		for i, err := range crowd(t, p, g, newKeys(600)) {
			if err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		}
		for _, n := range g.sent() {
			if n > 128 {
				t.Errorf("%d calls in a pipeline", n)
			}
		}
	})
	t.Run("long values go alone", func(t *testing.T) {
		t.Parallel()
		p, g := setup(t, server.Addr)
		all := newKeys(5)
		g.texts = []string{strings.Repeat("long", 25<<10)}
		for i, err := range crowd(t, p, g, all) {
			if err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		}
		for _, n := range g.sent() {
			if n > 1 {
				t.Errorf("%d calls went together", n)
			}
		}
	})
	t.Run("caller that leaves early", func(t *testing.T) {
		t.Parallel()
		p, g := setup(t, server.Addr)
		all := newKeys(3)
		ctx, cancel := context.WithCancel(t.Context())
		g.before = func() {
			cancel()
			testserver.Eventually(t, time.Minute, "the caller leaves", func() bool { return g.returned.Load() == 1 })
		}
		errs := crowd(t, p, g, all, t.Context(), ctx)
		if errs[0] != nil || errs[2] != nil {
			t.Errorf("the callers that stayed got %v and %v", errs[0], errs[2])
		}
		notSent(t, "the caller that left", errs[1], context.Canceled)
		if n := testclient.Redis(t, server.Addr).Exists(t.Context(), all[1]).Val(); n != 0 {
			t.Error("its call was sent")
		}
	})
	t.Run("forgotten scripts", func(t *testing.T) {
		t.Parallel()
		forgetful := testserver.StartRedis(t)
		p, g := setup(t, forgetful.Addr)
		for i, err := range crowd(t, p, g, newKeys(20)) {
			if err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		}
	})
	t.Run("broken connection", func(t *testing.T) {
		t.Parallel()
		proxy := testserver.NewRedisProxy(t, server.Addr)
		p, g := setup(t, proxy.Addr)
		all := newKeys(20)
		fault := proxy.Inject(testserver.Match{Arg: all[10]}, testserver.CloseReply)
		errs := crowd(t, p, g, all)
		fault.Await(t)
		unknown(t, "the call whose reply was lost", errs[10])
		for i, err := range errs {
			if _, again := take(t.Context(), p, all[i]); again != nil {
				t.Errorf("call %d, which got %v: the same call again got %v", i, err, again)
			}
		}
	})
	t.Run("panicking client", func(t *testing.T) {
		t.Parallel()
		p, g := setup(t, server.Addr)
		g.fail = func() { panic("a hook") }
		for i, err := range crowd(t, p, g, newKeys(5)) {
			if err == nil {
				t.Errorf("call %d got no error", i)
			}
		}
	})
	t.Run("lost reply holds up briefly", func(t *testing.T) {
		t.Parallel()
		proxy := testserver.NewRedisProxy(t, server.Addr)
		p := newPatient(t, proxy.Addr)
		mustTake(t, p, newKey())
		for range 2 { // the first call is sent alone
			all := newKeys(10)
			hang := proxy.Inject(testserver.Match{Arg: all[0]}, testserver.DropReply)
			ctx, leave := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := take(ctx, p, all[0])
				done <- err
			}()
			hang.Await(t)
			// The lost reply's call waits for a minute.
			behind, stop := context.WithTimeout(t.Context(), time.Minute/3)
			defer stop()
			for _, c := range all[1:] {
				if _, err := take(behind, p, c); err != nil {
					leave()
					t.Fatalf("behind it: %v", err)
				}
			}
			leave()
			unknown(t, "the call whose reply was lost", <-done)
		}
	})
}

func TestQuietPipeline_NoGoroutines(t *testing.T) {
	server := testserver.StartRedis(t)
	client := testclient.Redis(t, server.Addr, patient)
	before := goleak.IgnoreCurrent()
	p := pipeline.New(client)
	p.Patient()
	mustTake(t, p, newKey())
	if err := goleak.Find(before); err != nil {
		t.Errorf("some time after its last call: %v", err)
	}
	mustTake(t, p, newKey())
	p.Close()
	if err := goleak.Find(before); err != nil {
		t.Errorf("after it was closed: %v", err)
	}
}

// stacks is a hook that stores the stack on which the last script was sent.
type stacks struct {
	gate
	last atomic.Value
}

func (h *stacks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") { // and not a PING in the background
			h.last.Store(string(debug.Stack()))
		}
		return next(ctx, cmd)
	}
}

func TestCaller_CannotLeave(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for name, c := range map[string]struct {
		edit func(*redis.Options)
		ctx  context.Context
		own  bool
	}{
		"a context that never ends": {func(*redis.Options) {}, context.Background(), true},
		"one that can end":          {func(*redis.Options) {}, t.Context(), false},
		"short time-outs": {func(o *redis.Options) {
			o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout = false, time.Second, time.Second
		}, context.Background(), false},
		"a client that can hang": {func(o *redis.Options) { o.ContextTimeoutEnabled = false }, context.Background(), false},
		"one without time-outs": {func(o *redis.Options) {
			o.ContextTimeoutEnabled, o.ReadTimeout = false, -1
		}, context.Background(), false},
	} {
		t.Run(name, func(t *testing.T) {
			client, h := testclient.Redis(t, server.Addr, c.edit), &stacks{}
			client.AddHook(h)
			testserver.Eventually(t, time.Minute, "the call is answered", func() bool {
				_, err := take(c.ctx, newPipeline(t, client), newKey())
				return err == nil
			})
			if stack, _ := h.last.Load().(string); stack == "" || strings.Contains(stack, "TestCaller_CannotLeave") != c.own {
				t.Errorf("it was sent by a goroutine with the stack %q", stack)
			}
		})
	}
}
