package pipeline_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
)

// unreachable is the dialer and the hook of a client whose server can be down. Its calls
// are answered while up is set, and its PINGs hang until free is closed.
type unreachable struct {
	echo
	up    atomic.Bool
	pings atomic.Int64 // through the hook
	free  chan struct{}
}

func (u *unreachable) dial(context.Context, string, string) (net.Conn, error) {
	if !u.up.Load() {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	client, server := net.Pipe()
	go func() {
		for lines := bufio.NewScanner(server); lines.Scan(); {
			switch strings.ToLower(lines.Text()) {
			case "hello":
				_, _ = server.Write([]byte("-ERR unknown command\r\n"))
			case "ping":
				_, _ = server.Write([]byte("+PONG\r\n"))
			case "client":
				_, _ = server.Write([]byte("+OK\r\n"))
			}
		}
	}()
	return client, nil
}

func (u *unreachable) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "ping" {
			u.pings.Add(1)
			<-u.free
			return errImpatient
		}
		if !u.up.Load() {
			_, err := u.dial(ctx, "", "")
			cmd.SetErr(err)
			return err
		}
		answer(cmd, "{echo:1}")
		return nil
	}
}

// outage runs f with a Pipeline whose server is down. f calls enter for each acquire.
func outage(t *testing.T, f func(t *testing.T, u *unreachable, p *pipeline.Pipeline, enter func() error)) {
	synctest.Test(t, func(t *testing.T) {
		u := &unreachable{free: make(chan struct{})}
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: u.dial})
		client.AddHook(u)
		p := pipeline.New(client)
		if _, err := take(t.Context(), p, newKey()); err == nil || p.Down() == nil {
			t.Fatalf("got %v, want that the server is down", err)
		}
		f(t, u, p, func() error { return p.Enter(t.Context()) })
		close(u.free)
		p.Close()
		client.Close()
		time.Sleep(time.Minute)
	})
}

// TestProbe_HungDetour makes a PING through the user's client hang. As soon as the
// server is back, another probe must be answered.
func TestProbe_HungDetour(t *testing.T) {
	outage(t, func(t *testing.T, u *unreachable, p *pipeline.Pipeline, enter func() error) {
		for begun := time.Now(); u.pings.Load() == 0; time.Sleep(50 * time.Millisecond) {
			if enter() == nil || time.Since(begun) > time.Minute {
				t.Fatal("got no PING through the client, want one while the server is down")
			}
			synctest.Wait()
		}
		u.up.Store(true)
		back := time.Now()
		for enter() != nil {
		}
		if took := time.Since(back); took > 200*time.Millisecond {
			t.Errorf("got an open gate after %v, want at most 200ms", took)
		}
	})
}

// TestProbe_NextOutage ends an outage by the answer to a call. The first probe of the
// next outage must not use the user's client.
func TestProbe_NextOutage(t *testing.T) {
	outage(t, func(t *testing.T, u *unreachable, p *pipeline.Pipeline, enter func() error) {
		_ = enter()
		u.up.Store(true)
		if _, err := take(t.Context(), p, newKey()); err != nil || p.Down() != nil {
			t.Fatalf("got %v, want that the server is back", err)
		}
		u.up.Store(false)
		time.Sleep(time.Minute)
		_, _ = take(t.Context(), p, newKey())
		if err := enter(); err == nil {
			t.Error("got an open gate, want that the server is down again")
		}
		if n := u.pings.Load(); n != 0 {
			t.Errorf("got %d PINGs through the client, want none", n)
		}
	})
}
