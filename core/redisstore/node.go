package redisstore

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
)

// identity is what is known of the server. It holds for as long as the client
// dials no new connection: one that was open before the server was asked, and
// still serves, belongs to the same life of the server.
type identity struct {
	hook  sync.Once
	dials atomic.Int64 // connections that have come about

	mu    sync.Mutex
	known bool
	at    int64 // dials before it was asked
	asked time.Time
	info  core.NodeInfo
}

// Node implements core.Node for a *redis.Client, by INFO, which the user has to
// be allowed; for a cluster, which is many servers, it fails with
// core.ErrUnsupported. It asks again only after the client has dialed, which a
// hook on the client counts. A proxy that keeps its clients' connections while it
// changes the server behind them is not noticed.
func (s *Store) Node(ctx context.Context) (core.NodeInfo, error) {
	client, ok := s.client.(*redis.Client)
	if !ok {
		return core.NodeInfo{}, fmt.Errorf("redisstore: node: not one server: %w", core.ErrUnsupported)
	}
	d := &s.identity
	d.hook.Do(func() { client.AddHook(dialHook{&d.dials}) })
	dials := d.dials.Load()
	if info, ok := d.recall(dials); ok {
		return info, nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	asked := time.Now()
	text, err := leave(ctx, &flight{}, func() (string, error) { return client.Info(ctx).Result() })
	switch {
	case isReply(err, "NOPERM"), isReply(err, "ERR"):
		return core.NodeInfo{}, fmt.Errorf("redisstore: node: the server does not tell: %w", core.ErrUnsupported)
	case err != nil:
		return core.NodeInfo{}, s.failure(ctx, "node", &flight{}, err)
	}
	info, ok := parseNode(text)
	if !ok {
		return core.NodeInfo{}, fmt.Errorf("redisstore: node: the server does not tell: %w", core.ErrUnsupported)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known || dials >= d.at {
		d.known, d.at, d.asked, d.info = true, dials, asked, info
	}
	return info, nil
}

// recall returns what is known, if it was asked for when there were as many
// dials.
func (d *identity) recall(dials int64) (core.NodeInfo, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known || d.at != dials {
		return core.NodeInfo{}, false
	}
	info := d.info
	info.Age += time.Since(d.asked)
	return info, true
}

// parseNode reads the answer of INFO.
func parseNode(text string) (core.NodeInfo, bool) {
	var info core.NodeInfo
	aged := false
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "run_id":
			info.ID = value
		case "role":
			info.Replica = value != "master"
		case "uptime_in_seconds":
			n, err := strconv.ParseInt(value, 10, 32)
			// It is cut down from two readings of a clock of whole seconds.
			info.Age, aged = max(0, time.Duration(n-1)*time.Second), err == nil
		}
	}
	return info, info.ID != "" && aged
}

// dialHook counts the connections of a client.
type dialHook struct{ dials *atomic.Int64 }

// DialHook implements redis.Hook. It counts before anybody can use the
// connection.
func (h dialHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		h.dials.Add(1)
		return conn, err
	}
}

// ProcessHook implements redis.Hook.
func (dialHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (dialHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
