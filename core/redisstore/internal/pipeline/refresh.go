package pipeline

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// refreshInterval is the minimum time between two refreshes of a client. After this
	// time the PINGs of the first refresh have usually returned.
	refreshInterval = 2 * Limit
	// dropInterval is the minimum time between two closings of idle connections. After
	// each closing, the user's own calls have to connect again.
	dropInterval = time.Second
)

// late reports whether a call under ctx failed because it took too long, and not
// because its caller left.
func late(ctx context.Context, err error) bool {
	var timeout net.Error
	ok := errors.As(err, &timeout)
	return ctx.Err() == context.DeadlineExceeded || errors.Is(err, ErrNoAnswer) || ok && timeout.Timeout()
}

// refresh sends a PING over each idle connection of the client, and over a new one if
// none is idle. It follows a late call, for two reasons. First, a load balancer may
// have forgotten the connection of that call. Then other connections that were idle for
// as long are silent too. The PINGs take these connections out of the pool at once, so
// that later calls dial. The client closes them when their PINGs time out. Second, the
// call may have had too little time to connect, and the client has closed the
// incomplete connection. A PING can take Limit, and leaves a connection for later
// calls.
//
// Two connections of the client's main pool are left to calls. A pipeline also uses the
// main pool if the pool for pipelines has no connection.
func (v *server) refresh() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.client == nil || time.Since(v.refreshed) < refreshInterval {
		return
	}
	v.refreshed = time.Now()
	client := v.client
	for pipelined, n := range idle(client) {
		if pipelined == 0 {
			n = min(n, poolSize(client.Options())-2)
		}
		inBackground(n, func(ctx context.Context) { _ = ask(ctx, client, pipelined == 1, "ping") })
	}
}

// idle returns the numbers of idle connections in the client's two pools. The second
// pool is for pipelines.
func idle(client *redis.Client) (n [2]int) {
	stats := client.PoolStats()
	n[0] = int(stats.IdleConns)
	if stats.PipelineStats != nil {
		n[1] = int(stats.PipelineStats.IdleConns)
	}
	return n
}

// ask sends a command, over a connection of the pool for pipelines if pipelined is set,
// and otherwise of the other pool.
func ask(ctx context.Context, client *redis.Client, pipelined bool, words ...any) error {
	cmd := single{redis.NewCmd(ctx, words...)}
	if !pipelined {
		return client.Process(ctx, cmd)
	}
	pipe := client.Pipeline()
	_ = pipe.Process(ctx, cmd)
	_, err := pipe.Exec(ctx)
	return err
}

// inBackground starts n goroutines, but at least one, that run ping. The client's
// time-outs or its Close end them.
func inBackground(n int, ping func(context.Context)) {
	for range max(n, 1) {
		go func() {
			defer func() { _ = recover() }() // a hook of the client can panic
			ctx, cancel := context.WithTimeout(context.Background(), Limit)
			defer cancel()
			ping(ctx)
		}()
	}
}

// drop closes the idle connections of the client in the background, within dropInterval
// and at most once in that time. These connections lead to a server that has lost its
// role. New connections can lead to the server that has the role now.
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

// closeIdle makes the client take each idle connection for a command that fails when it
// is written. It stops when no connection is idle. Other calls may have taken them, and
// the next command would dial.
func closeIdle(ctx context.Context, client *redis.Client) {
	for pipelined, n := range idle(client) {
		for range n {
			if idle(client)[pipelined] > 0 {
				_ = ask(ctx, client, pipelined == 1, "ping", unwritable{})
			}
		}
	}
}

var errDropped = errors.New("the connection is closed, since its server has lost its role")

// unwritable is an argument that fails when a client writes it. Then nothing is sent,
// and the client closes the connection.
type unwritable struct{}

func (unwritable) MarshalBinary() ([]byte, error) { return nil, errDropped }
