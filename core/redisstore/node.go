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

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/store"
)

// identity is the known identity of the server. It is valid until the client dials a
// new connection. If a connection was open before the INFO and still works, the server
// has not restarted since then.
type identity struct {
	hook  sync.Once
	dials atomic.Int64 // the number of connections that were opened

	turn  chan struct{} // has an element while a caller uses the next fields
	known bool
	at    int64     // the value of dials before the INFO was sent
	asked time.Time // the time before the INFO was sent
	info  store.NodeInfo
}

// Node implements store.Node for a *redis.Client. It sends INFO, which needs the right
// +info. Node remembers the answer. It sends INFO again only after the client has
// dialed again, once for all concurrent callers. A hook on the client counts the dials.
// Node does not notice a proxy that replaces the server behind open connections. Node
// fails with store.ErrUnsupported for any other client, without the right, and if the
// answer has no identity.
func (s *Store) Node(ctx context.Context) (store.NodeInfo, error) {
	client, ok := s.client.(*redis.Client)
	if !ok {
		return store.NodeInfo{}, fmt.Errorf("redisstore: node: the client is not for one server: %w", store.ErrUnsupported)
	}
	d := &s.identity
	d.hook.Do(func() { client.AddHook(dialHook{&d.dials}) })
	dials := d.dials.Load()
	// After the wait, a caller usually finds the answer that another caller received.
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return store.NodeInfo{}, s.unanswered(ctx, "node", context.Cause(ctx))
	}
	if d.known && d.at >= dials {
		info := d.info
		info.Age += time.Since(d.asked)
		return info, nil
	}
	at, asked := d.dials.Load(), time.Now()
	info, err := s.info(ctx, client)
	if err == nil {
		d.known, d.at, d.asked, d.info = true, at, asked, info
	}
	return info, err
}

func (s *Store) info(ctx context.Context, client *redis.Client) (store.NodeInfo, error) {
	ctx, cancel := pipeline.Bounded(ctx)
	defer cancel()
	text, err := pipeline.Detached(ctx, func() (string, error) { return client.Info(ctx).Result() })
	switch {
	case isReply(err, "NOPERM"), isReply(err, "ERR"):
		return store.NodeInfo{}, fmt.Errorf("redisstore: node: the server does not report its identity: %w", store.ErrUnsupported)
	case err != nil:
		return store.NodeInfo{}, s.unanswered(ctx, "node", err)
	}
	info, ok := parseNode(text)
	if !ok {
		return store.NodeInfo{}, fmt.Errorf("redisstore: node: the server does not report its identity: %w", store.ErrUnsupported)
	}
	return info, nil
}

func parseNode(text string) (store.NodeInfo, bool) {
	var info store.NodeInfo
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
			// The server computes the uptime from a clock with whole seconds, so the
			// uptime can be 1 s too high.
			info.Age, aged = max(0, time.Duration(n-1)*time.Second), err == nil
		}
	}
	return info, info.ID != "" && aged
}

// dialHook counts the connections that a client opens.
type dialHook struct{ dials *atomic.Int64 }

// DialHook implements redis.Hook. It counts a connection before any caller can use it.
func (h dialHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err == nil {
			h.dials.Add(1)
		}
		return conn, err
	}
}

// ProcessHook implements redis.Hook.
func (dialHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (dialHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
