package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/deadline"
	"github.com/lockkit/lockkit/core/redisstore"
)

// hung is a hook of a client that answers nothing before the contexts end, and with
// deaf nothing at all.
type hung struct {
	deaf  bool
	until chan struct{}
}

func (h *hung) wait(ctx context.Context) error {
	done := ctx.Done()
	if h.deaf {
		done = nil
	}
	select {
	case <-done:
		return ctx.Err()
	case <-h.until:
		return errors.New("the connection is closed")
	}
}

func (h *hung) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *hung) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, _ redis.Cmder) error { return h.wait(ctx) }
}

func (h *hung) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, _ []redis.Cmder) error { return h.wait(ctx) }
}

// A call ends when its time is over, to the moment, whoever it travels with, and
// with the cause of its own context.
func TestACallEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	errSlow, errBored := errors.New("slow"), errors.New("bored")
	calls := []struct {
		ctx  func() (context.Context, func())
		ends time.Duration
		want error
	}{
		{func() (context.Context, func()) { return context.Background(), func() {} }, 2 * time.Second, nil},
		{func() (context.Context, func()) {
			c := deadline.New(context.Background(), 130*time.Millisecond, errSlow)
			return c, c.Cancel
		}, 130 * time.Millisecond, errSlow},
		{func() (context.Context, func()) {
			c := deadline.New(context.Background(), 20*time.Millisecond, nil)
			return c, c.Cancel
		}, 20 * time.Millisecond, context.DeadlineExceeded},
		{func() (context.Context, func()) {
			parent, end := context.WithTimeoutCause(context.Background(), 75*time.Millisecond, errBored)
			c := deadline.New(parent, time.Second, errSlow)
			return c, func() { c.Cancel(); end() }
		}, 75 * time.Millisecond, errBored},
		{func() (context.Context, func()) {
			c := deadline.New(context.Background(), time.Hour, errSlow)
			return c, c.Cancel
		}, 2 * time.Second, nil},
	}
	for name, c := range map[string]struct{ brief, deaf bool }{
		"a client with ContextTimeoutEnabled": {true, false},
		"a client that hangs":                 {false, true},
	} {
		for i := range calls { // which of them is the first, and alone
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					h := &hung{deaf: c.deaf, until: make(chan struct{})}
					client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: c.brief})
					client.AddHook(h)
					s, err := redisstore.New(client)
					if err != nil {
						t.Fatal(err)
					}
					start := time.Now()
					for j := range calls {
						call := calls[(i+j)%len(calls)]
						go func() {
							ctx, end := call.ctx()
							defer end()
							_, err := s.Acquire(ctx, claimed())
							if took := time.Since(start); took != call.ends {
								t.Errorf("call %d ended after %v, want %v", (i+j)%len(calls), took, call.ends)
							}
							if err == nil || call.want != nil && !errors.Is(err, call.want) {
								t.Errorf("call %d: got %v, want %v", (i+j)%len(calls), err, call.want)
							}
						}()
						synctest.Wait()
					}
					time.Sleep(time.Minute)
					close(h.until)
					if err := errors.Join(s.Close(), client.Close()); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}
