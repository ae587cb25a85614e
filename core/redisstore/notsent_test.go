package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestNotSent makes calls fail before they reach a server. In one case a hook fails
// after the command, and the outcome is unknown.
func TestNotSent(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T, s *redisstore.Store, also error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		lock := claimed()
		_, err := s.Acquire(ctx, lock)
		wantIs(t, "acquire", err, store.ErrUnavailable)
		wantIs(t, "extend", s.Extend(ctx, []store.Claim{lock})[0].Err, store.ErrUnavailable)
		wantIs(t, "release", s.Release(ctx, lock), store.ErrUnavailable)
		if also != nil {
			wantIs(t, "acquire", err, also)
		}
	}
	for way, edit := range ways {
		if edit == nil {
			edit = func(*redis.Options) {}
		}
		t.Run("no server listens "+way, func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t)
			server.Kill()
			refused(t, newStore(t, testclient.Redis(t, server.Addr, edit, func(o *redis.Options) { o.DialerRetries = 1 })), nil)
		})
		t.Run("no handshake "+way, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			refused(t, newStore(t, testclient.Redis(t, l.Addr().String(), edit)), context.DeadlineExceeded)
		})
		t.Run("pool is exhausted "+way, func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t)
			client := testclient.Redis(t, server.Addr, edit, func(o *redis.Options) {
				o.PoolSize, o.PoolTimeout = 1, 100*time.Millisecond
			}, testclient.OnePool)
			conn := client.Conn()
			defer conn.Close()
			if err := conn.Ping(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			refused(t, newStore(t, client), redis.ErrPoolTimeout)
		})
		t.Run("client is closed "+way, func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t)
			client := testclient.Redis(t, server.Addr, edit)
			s := newStore(t, client)
			client.Close()
			refused(t, s, redis.ErrClosed)
		})
		t.Run("hook stops the command "+way, func(t *testing.T) {
			t.Parallel()
			client := testclient.Redis(t, testserver.StartRedis(t).Addr, edit)
			no := errors.New("not today")
			client.AddHook(hook{before: no})
			refused(t, newStore(t, client), no)
		})
		t.Run("hook fails after command "+way, func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t)
			client := testclient.Redis(t, server.Addr, edit)
			client.AddHook(hook{after: errors.New("too late")})
			s := newStore(t, client)
			unknown(t, "release", s.Release(t.Context(), claimed()))
		})
		t.Run("hook panics "+way, func(t *testing.T) {
			t.Parallel()
			client := testclient.Redis(t, testserver.StartRedis(t).Addr, edit)
			client.AddHook(hook{panics: true})
			refused(t, newStore(t, client), nil)
		})
	}
	t.Run("a limiter stops the command", func(t *testing.T) {
		t.Parallel()
		no := errors.New("not so many")
		client := testclient.Redis(t, testserver.StartRedis(t).Addr, func(o *redis.Options) { o.Limiter = limiter{no} })
		refused(t, newStore(t, client), no)
	})
}

// ofLock reports whether cmd is a Store's call: a script, or the SET of an acquire.
func ofLock(cmd redis.Cmder) bool {
	return strings.HasPrefix(cmd.Name(), "eval") || cmd.Name() == "set"
}

type hook struct {
	before, after error
	panics        bool
}

func (h hook) run(next func() error) error {
	if h.panics {
		panic("in a hook")
	}
	if h.before != nil {
		return h.before
	}
	return errors.Join(next(), h.after)
}

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		_ = fmt.Sprint(cmd.String(), cmd.Args()) // as tracing hooks do
		if !ofLock(cmd) {
			return next(ctx, cmd)
		}
		return h.run(func() error { return next(ctx, cmd) })
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !ofLock(cmds[0]) {
			return next(ctx, cmds)
		}
		return h.run(func() error { return next(ctx, cmds) })
	}
}

type limiter struct{ err error }

func (l limiter) Allow() error     { return l.err }
func (limiter) ReportResult(error) {}
