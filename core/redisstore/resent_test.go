package redisstore_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// redialer is a hook that makes all dials fail after a pipeline of calls. With again
// set, it also makes dials fail after a failed single call, and repeats failed calls.
type redialer struct {
	again bool
	away  atomic.Bool
}

var errNoRoute = &net.OpError{Op: "dial", Err: errors.New("no route")}

func (d *redialer) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if d.away.Load() {
			return nil, errNoRoute
		}
		return next(ctx, network, addr)
	}
}

func (d *redialer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if d.again && err != nil && ofLock(cmd) {
			d.away.Store(true)
			err = next(ctx, cmd)
		}
		return err
	}
}

func (d *redialer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if ofLock(cmds[0]) {
			d.away.Store(true)
		}
		if d.again && err != nil && ofLock(cmds[0]) {
			err = next(ctx, cmds)
		}
		return err
	}
}

// TestResent_PossiblyGranted checks that the outcome of a sent call stays unknown if a
// later try of this call, or of another call, cannot be sent.
func TestResent_PossiblyGranted(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T, again bool) (*rig, *redialer) {
		r, d := newRig(t, testserver.StartRedis(t), func(o *redis.Options) {
			o.DialerRetries, o.PoolSize = 1, 1
			testclient.OnePool(o)
		}), &redialer{again: again}
		return r, d
	}
	t.Run("hook fails to send again", func(t *testing.T) {
		t.Parallel()
		r, d := setup(t, true)
		r.client.AddHook(d)
		c := claimed()
		acquire(t, r.direct, c)
		r.proxy.Inject(testserver.Match{Script: "release"}, testserver.CloseReply)
		unknown(t, "release", r.store.Release(t.Context(), c)) // sent alone, not in a pipeline
		if r.exists(t, c) {
			t.Error("test setup: nothing was released")
		}
	})
	t.Run("beside a failed repeated extension", func(t *testing.T) {
		t.Parallel()
		r, d := setup(t, false)
		all := claims(2)
		for _, c := range all {
			acquire(t, r.store, c)
		}
		r.client.AddHook(d)
		r.proxy.Inject(testserver.Match{Script: "extend"}, testserver.ErrorReply("NOSCRIPT No matching script."))
		r.proxy.Inject(testserver.Match{Script: "extend"}, testserver.CloseReply)
		all[1].TTL = time.Hour
		got := r.store.Extend(t.Context(), all)
		wantIs(t, "the extension that the server refused", got[0].Err, store.ErrUnavailable)
		unknown(t, "the other one", got[1].Err)
		if left := r.asks.PTTL(t.Context(), stored(all[1])).Val(); left < time.Minute*10 {
			t.Errorf("test setup: the other one was not extended, and has %v", left)
		}
	})
}
