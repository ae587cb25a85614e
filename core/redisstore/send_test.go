package redisstore_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestCaller_Leaves checks that a call to a silent server returns when its context is
// done (hazards 8 and 23).
func TestCaller_Leaves(t *testing.T) {
	t.Parallel()
	for way, edit := range ways {
		if edit == nil {
			edit = func(*redis.Options) {}
		}
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t)
			s := newStore(t, testclient.Redis(t, server.Addr, edit))
			held := claimed()
			acquire(t, s, held)
			if err := extend(s, held); err != nil {
				t.Fatal(err)
			}
			server.Pause()
			why := errors.New("the user went home")
			calls := map[string]func(ctx context.Context) error{
				"acquire": func(ctx context.Context) error { _, err := s.Acquire(ctx, claimed()); return err },
				"extend":  func(ctx context.Context) error { return s.Extend(ctx, []store.Claim{held, held})[1].Err },
				"release": func(ctx context.Context) error { return s.Release(ctx, claimed()) },
				"watch":   func(ctx context.Context) error { _, err := s.Watch(ctx, claimed()); return err },
				"check":   s.Check,
			}
			ends := map[string]func(t *testing.T) (ctx context.Context, cause error){
				"deadline": func(t *testing.T) (context.Context, error) {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					t.Cleanup(cancel)
					return ctx, context.DeadlineExceeded
				},
				"cancel": func(t *testing.T) (context.Context, error) {
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(100*time.Millisecond, func() { cancel(why) })
					return ctx, why
				},
			}
			var wg sync.WaitGroup
			for call, run := range calls {
				for end, begin := range ends {
					wg.Go(func() {
						ctx, cause := begin(t)
						start := time.Now()
						err := run(ctx)
						if took := time.Since(start); took > 100*time.Millisecond+slack {
							t.Errorf("%s, %s: returned after %v", call, end, took)
						}
						if !errors.Is(err, cause) {
							t.Errorf("%s, %s: got %v, want one that matches %v", call, end, err, cause)
						}
					})
				}
			}
			wg.Go(func() {
				start := time.Now()
				_, err := s.Acquire(context.WithoutCancel(t.Context()), claimed())
				if took := time.Since(start); err == nil || took > 4*time.Second {
					t.Errorf("a call without a deadline returned %v after %v", err, took)
				}
			})
			wg.Wait()
			server.Resume()
			// The calls in flight arrive. None of them returned a grant, so the caller
			// has to clean up all of them.
			testserver.Eventually(t, 20*time.Second, "the server serves again", func() bool {
				return extend(s, held) == nil
			})
		})
	}
}

// endless is a context that is never done, although its deadline has passed.
type endless struct{ context.Context }

func (endless) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

// TestFailedCall_EndlessContext checks that a failed call returns although its context is
// never done.
func TestFailedCall_EndlessContext(t *testing.T) {
	t.Parallel()
	client := testclient.Redis(t, testserver.StartRedis(t).Addr)
	no := errors.New("not today")
	client.AddHook(hook{before: no})
	s := newStore(t, client)
	failed := make(chan error, 1)
	go func() { failed <- s.Release(endless{context.Background()}, claimed()) }()
	select {
	case err := <-failed:
		wantIs(t, "release", err, no)
	case <-time.After(soon):
		t.Error("got no return, want an error")
	}
}

// TestAbandonedCall_SendsNothing checks that a call whose caller has left is not sent
// later, when a connection becomes free.
func TestAbandonedCall_SendsNothing(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := testclient.Redis(t, server.Addr, func(o *redis.Options) {
		o.PoolSize, o.PoolTimeout, o.ContextTimeoutEnabled = 1, time.Minute, false
	}, testclient.OnePool)
	s := newStore(t, client)
	acquire(t, s, claimed())
	conn := client.Conn()
	if err := conn.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	c := claimed()
	err := within(t, 50*time.Millisecond, func(ctx context.Context) error {
		_, err := s.Acquire(ctx, c)
		return err
	})
	wantIs(t, "acquire", err, store.ErrUnavailable)
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	acquire(t, s, claimed())
	if n := testclient.Redis(t, server.Addr).Exists(t.Context(), stored(c)).Val(); n != 0 {
		t.Error("the call was sent after its caller had left")
	}
}

// TestAbandonedCall_Hook makes the same check with a user's hook that
// delays the call and then continues with its own context.
func TestAbandonedCall_Hook(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	client := testclient.Redis(t, r.proxy.Addr)
	s := newStore(t, client)
	acquire(t, s, claimed())
	slow := slowHook{arrived: make(chan struct{}), proceed: make(chan struct{}), done: make(chan error, 1)}
	client.AddHook(slow)
	c := claimed()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-slow.arrived
		cancel()
	}()
	_, err := s.Acquire(ctx, c)
	wantIs(t, "acquire", err, store.ErrUnavailable)
	wantIs(t, "acquire", err, context.Canceled)
	close(slow.proceed)
	if err := <-slow.done; err == nil {
		t.Error("the call was sent after its caller had left")
	}
	if r.exists(t, c) {
		t.Error("the key is taken")
	}
	if n := r.proxy.Count(testserver.Match{Arg: c.Lease}); n != 0 {
		t.Errorf("%d commands were sent", n)
	}
}

// slowHook delays the next call of a Store.
type slowHook struct {
	hook
	arrived, proceed chan struct{}
	done             chan error
}

func (h slowHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.hold(cmd, func() error { return next(context.WithoutCancel(ctx), cmd) })
	}
}

func (h slowHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.hold(cmds[0], func() error { return next(context.WithoutCancel(ctx), cmds) })
	}
}

func (h slowHook) hold(cmd redis.Cmder, next func() error) error {
	if !ofLock(cmd) {
		return next()
	}
	close(h.arrived)
	<-h.proceed
	err := next()
	h.done <- err
	return err
}

// TestScriptFlush makes a server forget scripts, which can occur at any time
// (hazard 29).
func TestScriptFlush(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	t.Cleanup(func() { everyKeyExpires(t, server) })
	stop := make(chan struct{})
	var wg, flush sync.WaitGroup
	asks := testclient.Redis(t, server.Addr)
	flush.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if err := asks.ScriptFlush(context.Background()).Err(); err != nil && !late(err) {
					t.Error(err)
				}
			}
		}
	})
	for _, opts := range [][]redisstore.Option{nil, {redisstore.WithPlainKeys()}} {
		s := newStore(t, testclient.Redis(t, server.Addr), opts...)
		for range 4 {
			wg.Go(func() {
				// With the pause, most rounds meet another flush.
				for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
					var batch []store.Claim
					for range 5 {
						c := claimed()
						batch = append(batch, c)
						if _, err := asked(func() (store.Grant, error) { return s.Acquire(context.Background(), c) }); err != nil {
							t.Errorf("acquire: %v", err)
							return
						}
					}
					_, err := asked(func() (_ struct{}, err error) {
						for _, x := range s.Extend(context.Background(), batch) {
							err = errors.Join(err, x.Err)
						}
						return
					})
					if err != nil {
						t.Errorf("extend: %v", err)
						return
					}
					for _, c := range batch {
						if err := released(s, c); err != nil {
							t.Errorf("release: %v", err)
							return
						}
					}
				}
			})
		}
	}
	wg.Wait()
	close(stop)
	flush.Wait()
	if n := statOf(asks.Info(t.Context(), "commandstats").Val(), "eval"); n < 10 {
		t.Errorf("only %d calls met a server that did not know the script", n)
	}
}

// TestUnderFIPS checks that scripts are named by SHA-1 even if SHA-1 is forbidden for
// security.
func TestUnderFIPS(t *testing.T) {
	t.Parallel()
	if os.Getenv("REDISSTORE_FIPS") != "" {
		server := testserver.StartRedis(t)
		s := newStore(t, testclient.Redis(t, server.Addr))
		c := claimed()
		acquire(t, s, c)
		if err := extend(s, c); err != nil {
			t.Error(err)
		}
		release(t, s, c)
		return
	}
	testserver.RequireRedis(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestUnderFIPS$", "-test.v")
	cmd.Env = append(os.Environ(), "REDISSTORE_FIPS=1", "GODEBUG=fips140=only", "GORACE=atexit_sleep_ms=0")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestUnderFIPS") {
		t.Errorf("%v\n%s", err, out)
	}
}
