package pipeline

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// refreshInterval is the minimum time between two refreshes of a client. The PINGs of the
	// first have mostly returned by then.
	refreshInterval = 2 * Limit
	// dropInterval is the minimum time between two times that idle connections are closed:
	// the user's own calls connect anew each time.
	dropInterval = time.Second
)

// late reports whether a call under ctx failed by its time, and not because its caller left.
func late(ctx context.Context, err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ctx.Err() == context.DeadlineExceeded || errors.Is(err, ErrNoAnswer) || ok && timeout.Timeout()
}

// refresh sends a PING over each idle connection of the client, and over a new one if none
// is idle. It follows a late call, for two reasons. A load balancer may have
// forgotten the connection of that call: then others that were idle as long are silent too.
// They leave the pool at once, so that later calls dial, and the client closes them when
// their PINGs time out. Or the call was too short to connect, and the client has closed the
// connection half made: a PING has Limit, and leaves a connection for later calls.
//
// Two connections of a pool are left to calls. A pipeline that finds no connection in the
// pool for pipelines takes one of the other pool.
func (v *server) refresh() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.client == nil || time.Since(v.refreshed) < refreshInterval {
		return
	}
	v.refreshed = time.Now()
	client := v.client
	stats := client.PoolStats()
	idle := min(int(stats.IdleConns), poolSize(client.Options())-2)
	inBackground(idle, func(ctx context.Context) { client.Ping(ctx) })
	if stats.PipelineStats != nil {
		inBackground(int(stats.PipelineStats.IdleConns), func(ctx context.Context) {
			_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error {
				p.Ping(ctx)
				return nil
			})
		})
	}
}

// inBackground starts n goroutines that run ping, or one if n is less. The client's time-outs
// end them, or its Close.
func inBackground(n int, ping func(context.Context)) {
	for range max(n, 1) {
		go func() {
			defer func() { _ = recover() }() // a hook of the client may panic
			ctx, cancel := context.WithTimeout(context.Background(), Limit)
			defer cancel()
			ping(ctx)
		}()
	}
}

// drop closes the idle connections of the client in the background, within dropInterval. They
// lead to a server that has lost its role, and new ones perhaps to the server that has it now.
func (v *server) drop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.dropping || !v.named {
		return
	}
	v.dropping = true
	time.AfterFunc(time.Until(v.dropped.Add(dropInterval)), func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.dropping, v.dropped = false, time.Now()
		if client := v.client; client != nil {
			inBackground(1, func(ctx context.Context) { closeIdle(ctx, client) })
		}
	})
}

// closeIdle has the client write a command that fails over each idle connection. If other
// calls take the connection first, there may be none left: a command would then dial.
func closeIdle(ctx context.Context, client *redis.Client) {
	ping := func() redis.Cmder { return single{redis.NewCmd(ctx, "ping", unwritable{})} }
	for range client.PoolStats().IdleConns {
		if client.PoolStats().IdleConns > 0 {
			_ = client.Process(ctx, ping())
		}
	}
	if client.PoolStats().PipelineStats == nil {
		return
	}
	for range client.PoolStats().PipelineStats.IdleConns {
		if client.PoolStats().PipelineStats.IdleConns > 0 {
			pipe := client.Pipeline()
			_ = pipe.Process(ctx, ping())
			_, _ = pipe.Exec(ctx)
		}
	}
}

var errDropped = errors.New("the connection is closed, since its server has lost its role")

// unwritable is an argument that fails when a client writes it. Nothing is sent, and the
// client closes the connection.
type unwritable struct{}

func (unwritable) MarshalBinary() ([]byte, error) { return nil, errDropped }
