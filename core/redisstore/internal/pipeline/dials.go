package pipeline

import (
	"context"
	"net"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Dials is a hook that counts the connections that a client opens. It counts each
// connection before any caller can use it, if the dial began after AddHook. Its zero
// value is ready for use.
type Dials struct{ opened atomic.Int64 }

// Opened returns the number of connections so far.
func (d *Dials) Opened() int64 { return d.opened.Load() }

// DialHook implements redis.Hook.
func (d *Dials) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err == nil {
			d.opened.Add(1)
		}
		return conn, err
	}
}

// ProcessHook implements redis.Hook.
func (*Dials) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (*Dials) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Opened returns the number of connections to the server of a *redis.Client that were
// not opened by this client, but by the Pipeline.
func (p *Pipeline) Opened() int64 { return p.server.dials.Opened() }

// Info returns the answer of the server of a *redis.Client to INFO. The limit is that of
// Do for a call without retries.
func (p *Pipeline) Info(ctx context.Context) (string, error) {
	ctx, cancel := Bounded(ctx)
	defer cancel()
	text, err := p.server.sender.info(ctx)
	if spare := p.server.other(err); spare != nil {
		return spare.info(ctx)
	}
	return text, err
}

func (s *sender) info(ctx context.Context) (string, error) {
	return Detached(ctx, func() (string, error) {
		cmd := single{redis.NewCmd(ctx, "info")}
		_ = s.client.Process(ctx, cmd)
		return cmd.Text()
	})
}
