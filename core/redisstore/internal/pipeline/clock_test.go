package pipeline_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestTimed checks that a Timed call gets a time of its server at which it was done.
func TestTimed(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := testclient.Redis(t, server.Addr, patient)
	us := func() int64 { return client.Time(t.Context()).Val().UnixMicro() }
	timed := func(p *pipeline.Pipeline, key string) (any, error) {
		got, err := p.Do(t.Context(), p.SetNX([]byte(key), []byte("value"), 60_000).Timed())
		return got.Reply, err
	}
	t.Run("single call", func(t *testing.T) {
		t.Parallel()
		p, key := newPipeline(t, client), newKey()
		p.Patient()
		before := us()
		got, err := timed(p, key)
		if at, ok := got.(int64); err != nil || !ok || at < before || at > us() {
			t.Errorf("got %v and %v, want a time since %d", got, err, before)
		}
		if got, err := timed(p, key); got != nil || err != nil {
			t.Errorf("got %v and %v of a key that is taken", got, err)
		}
		if v := client.Get(t.Context(), key).Val(); v != "value" {
			t.Errorf("the value is %q", v)
		}
	})
	t.Run("together with others", func(t *testing.T) {
		t.Parallel()
		proxy := testserver.NewRedisProxy(t, server.Addr)
		p := newPatient(t, proxy.Addr, func(o *redis.Options) { o.PoolSize = 1 }, testclient.OnePool)
		mustTake(t, p, newKey())
		proxy.Forget()
		before := us()
		const n = 80
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if i%2 == 1 {
					mustTake(t, p, newKey())
					return
				}
				got, err := timed(p, newKey())
				if at, ok := got.(int64); err != nil || !ok || at < before || at > us() {
					t.Errorf("got %v and %v, want a time since %d", got, err, before)
				}
			})
		}
		all.Wait()
		times, since := 0, 0 // the numbers of TIMEs, and of calls since the last TIME
		for _, q := range proxy.Requests() {
			switch q.Name {
			case "set":
				since++
			case "time":
				times, since = times+1, 0
			}
		}
		if times == 0 || times > n/2 || since != 0 {
			t.Errorf("got %d times for %d calls, %d of them without a time", times, n/2, since)
		}
	})
	t.Run("unknown time", func(t *testing.T) {
		t.Parallel()
		for name, action := range map[string]testserver.Action{
			"refused": testserver.ErrorReply("NOPERM not you"), "lost": testserver.CloseReply, "no time": testserver.ErrorReply("ERR no"),
		} {
			var got any
			var key string
			var err error
			meet(t, server, testserver.Match{Command: "time"}, action, func(p *pipeline.Pipeline) {
				key = newKey()
				got, err = timed(p, key)
			})
			if got != nil || err == nil || !pipeline.Sent(err) || !strings.Contains(err.Error(), "time is not known") {
				t.Errorf("%s: got %v and %v", name, got, err)
			}
			if errors.As(err, new(redis.Error)) {
				t.Errorf("%s: %v reads as a reply to the call", name, err)
			}
			if client.Exists(t.Context(), key).Val() == 0 {
				t.Errorf("%s: test setup: the call was not done", name)
			}
		}
	})
	t.Run("with a WAIT", func(t *testing.T) {
		t.Parallel()
		proxy := testserver.NewRedisProxy(t, server.Addr)
		p, key := newPatient(t, proxy.Addr), newKey()
		wait := func(p *pipeline.Pipeline, key string) (pipeline.Replicated, error) {
			return p.Do(t.Context(), p.SetNX([]byte(key), []byte("value"), 60_000).Timed().Wait(1, 20*time.Millisecond))
		}
		before := us()
		got, err := wait(p, key)
		if at, ok := got.Reply.(int64); err != nil || !ok || at < before || at > us() || got.Err != nil || got.Replicas != 0 {
			t.Errorf("got %+v and %v, want a time since %d", got, err, before)
		}
		var sent []string
		for _, q := range proxy.Requests() {
			sent = append(sent, q.Name)
		}
		if got := strings.Join(sent, " "); !strings.HasSuffix(got, "set time wait") {
			t.Errorf("got the requests %q, want the time before the WAIT", got)
		}
		if got, err := wait(p, key); got.Reply != nil || err != nil {
			t.Errorf("got %+v and %v of a key that is taken", got, err)
		}
		proxy.Inject(testserver.Match{Command: "time"}, testserver.ErrorReply("NOPERM not you"))
		got, err = wait(p, newKey())
		var noTime *pipeline.NoTimeError
		if !errors.As(err, &noTime) || !noTime.Refused() || !pipeline.Sent(err) || got.Err != nil {
			t.Errorf("refused: got %+v and %v", got, err)
		}
		for _, command := range []string{"set", "time", "wait"} {
			meet(t, server, testserver.Match{Command: command}, testserver.CloseReply, func(p *pipeline.Pipeline) {
				got, err = wait(p, newKey())
			})
			if err == nil && got.Err == nil || !pipeline.Sent(err) {
				t.Errorf("the reply of %s is lost: got %+v and %v", command, got, err)
			}
		}
	})
	t.Run("client of several servers", func(t *testing.T) {
		t.Parallel()
		p, key := newPipeline(t, struct{ redis.UniversalClient }{client}), newKey()
		if _, err := timed(p, key); !errors.Is(err, pipeline.ErrElsewhere) || client.Exists(t.Context(), key).Val() != 0 {
			t.Errorf("got %v", err)
		}
	})
}

// meet makes a call that meets a fault.
func meet(t *testing.T, server *testserver.Redis, of testserver.Match, action testserver.Action, call func(p *pipeline.Pipeline)) {
	t.Helper()
	proxy := testserver.NewRedisProxy(t, server.Addr)
	fault := proxy.Inject(of, action)
	p := newPatient(t, proxy.Addr)
	call(p)
	if proxy.Times(fault) == 0 {
		t.Error("test setup: the fault did not occur")
	}
}

// leaving is a hook that gives up on pipelines of calls while they are in flight.
type leaving struct {
	run  func(n int, cmds []redis.Cmder, next func() error) error // for the nth pipeline
	n    int
	late sync.WaitGroup
}

func (h *leaving) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h *leaving) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *leaving) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "set" {
			return next(ctx, cmds)
		}
		h.n++
		return h.run(h.n, cmds, func() error { return next(context.WithoutCancel(ctx), cmds) })
	}
}

// done answers a SET, and setTime a TIME.
func (*leaving) done(cmd redis.Cmder) {
	cmd.(*pipeline.Call).SetVal("OK")
	cmd.SetErr(nil)
}

func (*leaving) setTime(cmd redis.Cmder, second int64) {
	cmd.(interface{ SetVal(time.Time) }).SetVal(time.Unix(second, 0))
	cmd.SetErr(nil)
}

// TestHook_GivesUpBeforeAWait checks that a call fails as not sent when a hook gives up
// on it. The outcome must not look like the reply that the key is taken.
func TestHook_GivesUpBeforeAWait(t *testing.T) {
	t.Parallel()
	for name, why := range map[string]error{"with an error": errImpatient, "without one": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := testclient.Redis(t, "127.0.0.1:1")
			client.AddHook(&leaving{run: func(int, []redis.Cmder, func() error) error { return why }})
			p := newPipeline(t, client)
			ctx, cancel := pipeline.Bounded(t.Context())
			defer cancel()
			got, err := p.Do(ctx, p.SetNX([]byte("key"), []byte("value"), 60_000).Timed().Wait(1, time.Second))
			if err == nil || pipeline.Sent(err) || !errors.Is(err, why) && why != nil {
				t.Errorf("got %+v and %v", got, err)
			}
			if got, err := p.Do(ctx, p.SetNX([]byte("key"), []byte("value"), 60_000).Timed()); err == nil {
				t.Errorf("without a WAIT: got %v", got)
			}
		})
	}
}

// TestALateTime checks a time that arrives after a hook has given up on its pipeline.
// Only a call of that pipeline may get the time, and no finished call may get it.
func TestALateTime(t *testing.T) {
	t.Parallel()
	timed := func(t *testing.T, p *pipeline.Pipeline) (any, error) {
		got, err := p.Do(t.Context(), p.SetNX([]byte(newKey()), []byte("value"), 60_000).Timed())
		return got.Reply, err
	}
	start := func(t *testing.T, addr string, h *leaving) *pipeline.Pipeline {
		client := testclient.Redis(t, addr, patient)
		client.AddHook(h)
		t.Cleanup(h.late.Wait)
		p := newPipeline(t, client)
		p.Patient()
		return p
	}
	t.Run("of a server", func(t *testing.T) {
		t.Parallel()
		proxy := testserver.NewRedisProxy(t, testserver.StartRedis(t).Addr)
		given := make(chan struct{})
		h := &leaving{}
		h.run = func(n int, cmds []redis.Cmder, next func() error) error {
			if n > 1 {
				return next()
			}
			h.late.Go(func() {
				<-given
				_ = next()
			})
			return errImpatient
		}
		p := start(t, proxy.Addr, h)
		if got, err := timed(t, p); err == nil {
			t.Errorf("got %v", got)
		}
		close(given)
		h.late.Wait() // it must not panic
		if got, err := timed(t, p); err != nil || got == nil {
			t.Errorf("the next one: got %v and %v", got, err)
		}
	})
	t.Run("while the next call waits", func(t *testing.T) {
		t.Parallel()
		h := &leaving{}
		var late redis.Cmder
		h.run = func(n int, cmds []redis.Cmder, _ func() error) error {
			if n == 1 {
				late = cmds[1]
				return errImpatient
			}
			h.done(cmds[0])
			if n == 3 {
				h.setTime(late, 1)
			}
			h.setTime(cmds[1], 9)
			return nil
		}
		p := start(t, "127.0.0.1:1", h)
		for n := range 3 {
			if got, err := timed(t, p); n > 0 && (err != nil || got != int64(9_000_000)) {
				t.Errorf("call %d: got %v and %v", n+1, got, err)
			}
		}
	})
	for name, late := range map[string]func(h *leaving, cmd redis.Cmder){
		"while its caller looks":         func(h *leaving, cmd redis.Cmder) { h.setTime(cmd, 9) },
		"that fails as its caller looks": func(_ *leaving, cmd redis.Cmder) { cmd.SetErr(context.DeadlineExceeded) },
	} {
		t.Run(name, func(t *testing.T) { // for the race detector
			t.Parallel()
			h := &leaving{}
			h.run = func(_ int, cmds []redis.Cmder, _ func() error) error {
				h.done(cmds[0])
				h.late.Go(func() { late(h, cmds[1]) })
				return errImpatient
			}
			p := start(t, "127.0.0.1:1", h)
			for range 1000 {
				if got, err := timed(t, p); err != nil && !pipeline.Sent(err) || err == nil && got != int64(9_000_000) {
					t.Fatalf("got %v and %v", got, err)
				}
			}
		})
	}
}

// TestTimed_Allocations counts the allocations of a Timed call beyond those of a usual
// call. There are three: the TIME, the client's list of both commands, and the reply.
// The least of many counts is the one without the race detector's losses and other
// goroutines. The test is not parallel, because it counts the allocations of all
// goroutines.
func TestTimed_Allocations(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	client.AddHook(granting{})
	p := newPipeline(t, client)
	least := func(call func() *pipeline.Call) float64 {
		n := math.Inf(1)
		for range 200 {
			n = min(n, testing.AllocsPerRun(1, func() {
				if _, err := p.Do(context.Background(), call()); err != nil {
					t.Error(err)
				}
			}))
		}
		return n
	}
	key, value := []byte("{key}"), []byte("value")
	usual := least(func() *pipeline.Call { return p.SetNX(key, value, 60_000) })
	timed := least(func() *pipeline.Call { return p.SetNX(key, value, 60_000).Timed() })
	if timed-usual > 3 {
		t.Errorf("got %v allocations for a Timed call and %v for a usual one, want at most 3 more", timed, usual)
	}
}

type granting struct{}

func (granting) DialHook(next redis.DialHook) redis.DialHook { return next }

func (granting) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		cmd.(interface{ SetVal(any) }).SetVal("OK")
		cmd.SetErr(nil)
		return nil
	}
}

func (h granting) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		cmds[1].(interface{ SetVal(time.Time) }).SetVal(time.Now())
		return h.ProcessHook(nil)(ctx, cmds[0])
	}
}
