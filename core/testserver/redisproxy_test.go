package testserver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// brief returns a context that is done long before the client's own timeouts.
func brief(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestRedisProxy(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	direct := testclient.Redis(t, server.Addr)

	through := func(t *testing.T, edit ...func(*redis.Options)) (*testserver.Proxy, *redis.Client) {
		t.Parallel()
		p := testserver.NewRedisProxy(t, server.Addr)
		c := testclient.Redis(t, p.Addr, edit...)
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		return p, c
	}
	value := func(t *testing.T, key string) string {
		t.Helper()
		v, err := direct.Get(t.Context(), key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		return v
	}
	becomes := func(t *testing.T, key, want string) {
		t.Helper()
		testserver.Eventually(t, 10*time.Second, key+" is "+want, func() bool { return value(t, key) == want })
	}

	for _, protocol := range []int{2, 3} {
		t.Run(map[int]string{2: "everything passes in RESP2", 3: "everything passes in RESP3"}[protocol], func(t *testing.T) {
			p, c := through(t, func(o *redis.Options) { o.Protocol = protocol })
			ctx := t.Context()
			pipe := c.Pipeline()
			for range 100 {
				pipe.Incr(ctx, "passes:"+t.Name())
				pipe.HSet(ctx, "passes:h"+t.Name(), "a", "1", "b", "")
				pipe.HGetAll(ctx, "passes:h"+t.Name())
				pipe.Get(ctx, "passes:missing")
			}
			if cmds, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) || len(cmds) != 400 {
				t.Fatalf("got %d answers and error %v", len(cmds), err)
			}
			if v := value(t, "passes:"+t.Name()); v != "100" {
				t.Errorf("counted to %s, want 100", v)
			}
			if n := p.Count(testserver.Match{Command: "INCR", Arg: t.Name()}); n != 100 {
				t.Errorf("the proxy saw %d of 100 commands", n)
			}
			news := "passes:news:" + t.Name()
			sub := c.Subscribe(ctx, news)
			defer sub.Close()
			if _, err := sub.Receive(ctx); err != nil {
				t.Fatal(err)
			}
			testserver.Eventually(t, 10*time.Second, "the message has a receiver", func() bool {
				return direct.Publish(ctx, news, "hello").Val() > 0
			})
			if m, err := sub.ReceiveMessage(ctx); err != nil || m.Payload != "hello" {
				t.Errorf("got message %v and error %v", m, err)
			}
			if err := sub.Ping(ctx); err != nil {
				t.Fatal(err)
			}
			if m, err := sub.Receive(ctx); err != nil {
				t.Errorf("got %v and error %v, want a pong", m, err)
			} else if _, ok := m.(*redis.Pong); !ok {
				t.Errorf("got %v, want a pong", m)
			}
		})
	}
	// The request does not reach the server, and the connection hangs.
	t.Run("dropped request", func(t *testing.T) {
		p, c := through(t)
		f := p.Inject(testserver.Match{Command: "set"}, testserver.DropRequest)
		if err := c.Set(brief(t), "droprequest", "1", 0).Err(); !errors.Is(err, context.DeadlineExceeded) && !isTimeout(err) {
			t.Errorf("got %v, want a time-out", err)
		}
		f.Await(t)
		if err := c.Set(t.Context(), "droprequest", "2", 0).Err(); err != nil {
			t.Error(err)
		}
		if v := value(t, "droprequest"); v != "2" || p.Times(f) != 1 {
			t.Errorf("value %q, fault fired %d times; want 2, once", v, p.Times(f))
		}
	})
	// The request does not reach the server.
	t.Run("closed request", func(t *testing.T) {
		p, c := through(t)
		p.Inject(testserver.Match{Command: "set"}, testserver.CloseRequest)
		if err := c.Set(t.Context(), "closerequest", "1", 0).Err(); err == nil || isTimeout(err) {
			t.Errorf("got %v, want a broken connection", err)
		}
		if v := value(t, "closerequest"); v != "" {
			t.Errorf("the server has %q", v)
		}
	})
	// The server executes a command whose reply is lost.
	t.Run("lost reply", func(t *testing.T) {
		p, c := through(t)
		p.Inject(testserver.Match{Command: "incr"}, testserver.DropReply)
		if err := c.Incr(brief(t), "dropreply").Err(); !isTimeout(err) {
			t.Errorf("got %v, want a time-out", err)
		}
		p.Inject(testserver.Match{Command: "incr"}, testserver.CloseReply)
		if err := c.Incr(t.Context(), "dropreply").Err(); err == nil || isTimeout(err) {
			t.Errorf("got %v, want a broken connection", err)
		}
		becomes(t, "dropreply", "2")
	})
	// The request reaches the server after Deliver, even if the client has closed the
	// connection.
	t.Run("held request", func(t *testing.T) {
		p, c := through(t)
		f := p.Inject(testserver.Match{Command: "set", Arg: "late"}, testserver.HoldRequest)
		if err := c.Set(brief(t), "heldrequest", "late", 0).Err(); !isTimeout(err) {
			t.Errorf("got %v, want a time-out", err)
		}
		f.Await(t)
		if err := c.Set(t.Context(), "heldrequest", "next", 0).Err(); err != nil {
			t.Error(err)
		}
		if v := value(t, "heldrequest"); v != "next" {
			t.Errorf("the server has %q", v)
		}
		f.Deliver()
		becomes(t, "heldrequest", "late")
	})
	t.Run("held reply", func(t *testing.T) {
		p, c := through(t)
		f := p.Inject(testserver.Match{Command: "incr"}, testserver.HoldReply)
		done := make(chan error, 1)
		go func() { done <- c.Incr(t.Context(), "heldreply").Err() }()
		f.Await(t)
		becomes(t, "heldreply", "1")
		select {
		case err := <-done:
			t.Errorf("the reply came before its time: %v", err)
		default:
		}
		f.Deliver()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	// The server executes the request twice, and the client receives one reply.
	t.Run("doubled request", func(t *testing.T) {
		p, c := through(t)
		p.Inject(testserver.Match{Command: "incr"}, testserver.DoubleRequest)
		if n, err := c.Incr(t.Context(), "doubled").Result(); err != nil || n != 1 {
			t.Errorf("got %d and error %v, want the first answer", n, err)
		}
		if v, err := c.Get(t.Context(), "doubled").Result(); err != nil || v != "2" {
			t.Errorf("the server has %q (%v), want 2", v, err)
		}
	})
	// A fault reports when the server has executed its command.
	t.Run("answered command", func(t *testing.T) {
		p, c := through(t)
		for action, want := range map[testserver.Action]bool{
			testserver.DropReply: true, testserver.CloseReply: true, testserver.HoldRequest: true, testserver.HoldReply: true,
			testserver.DoubleRequest: true, testserver.DropRequest: false, testserver.CloseRequest: false, testserver.ErrorReply("ERR no"): false,
		} {
			key := fmt.Sprint("answered:", action)
			f := p.Inject(testserver.Match{Command: "incr"}, action)
			_ = c.Incr(brief(t), key).Err()
			f.Await(t)
			if action == testserver.HoldRequest {
				select {
				case <-f.Answered():
					t.Errorf("%v: got an answer before the delivery", action)
				default:
				}
			}
			f.Deliver()
			if !want {
				continue
			}
			select {
			case <-f.Answered():
			case <-time.After(10 * time.Second):
				t.Errorf("%v: got no answer", action)
			}
			if v := value(t, key); v != "1" && !(v == "2" && action == testserver.DoubleRequest) {
				t.Errorf("%v: got an answer and the value %q", action, v)
			}
		}
	})
	// The third command gets the injected error as its reply. The other commands get the
	// server's replies.
	t.Run("error reply", func(t *testing.T) {
		p, c := through(t)
		p.Inject(testserver.Match{Command: "incr", Skip: 2}, testserver.ErrorReply("OOM no"))
		pipe := c.Pipeline()
		var cmds []*redis.IntCmd
		for range 4 {
			cmds = append(cmds, pipe.Incr(t.Context(), "replaced"))
		}
		_, _ = pipe.Exec(t.Context())
		for i, want := range []int64{1, 2, 0, 3} {
			if n, err := cmds[i].Result(); n != want || (err != nil) != (i == 2) {
				t.Errorf("answer %d: got %d and error %v, want %d", i, n, err, want)
			}
		}
	})
	t.Run("garbage and unrelated replies", func(t *testing.T) {
		p, c := through(t)
		p.Inject(testserver.Match{Command: "incr"}, testserver.GarbageReply)
		p.Inject(testserver.Match{Command: "incr"}, testserver.UnrelatedReply)
		for range 2 {
			if n, err := c.Incr(t.Context(), "garbage").Result(); err == nil {
				t.Errorf("got %d, want an error", n)
			}
		}
		becomes(t, "garbage", "2")
	})
	t.Run("a partition delivers late", func(t *testing.T) {
		p, c := through(t)
		p.Partition()
		if err := c.Set(brief(t), "partition", "1", 0).Err(); !isTimeout(err) {
			t.Errorf("got %v, want a time-out", err)
		}
		if v := value(t, "partition"); v != "" {
			t.Errorf("the server has %q", v)
		}
		p.Heal()
		becomes(t, "partition", "1")
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a delay is in both directions", func(t *testing.T) {
		p, c := through(t)
		const delay = 50 * time.Millisecond
		p.Delay(delay)
		start := time.Now()
		if err := c.Set(t.Context(), "delayed", "1", 0).Err(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took < 2*delay {
			t.Errorf("got the reply after %v, want at least %v", took, 2*delay)
		}
		p.Delay(0)
	})
	// Messages on severed connections are lost, and new connections work.
	t.Run("severed connections", func(t *testing.T) {
		p, c := through(t)
		f := p.Inject(testserver.Match{Command: "set"}, testserver.HoldRequest)
		done := make(chan error, 1)
		go func() { done <- c.Set(t.Context(), "severed", "1", 0).Err() }()
		f.Await(t)
		p.Sever()
		if err := <-done; err == nil {
			t.Error("the command was answered")
		}
		if err := c.Set(t.Context(), "severed", "2", 0).Err(); err != nil {
			t.Error(err)
		}
		if v := value(t, "severed"); v != "2" {
			t.Errorf("the server has %q, want 2", v)
		}
	})
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}
