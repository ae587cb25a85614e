package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/fresh"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/store"
)

// identity is the known identity of the server. It is valid until the client or the
// Pipeline opens a connection. If a connection was open before the INFO and still works,
// its server has not restarted since then. While no connection of the client was
// counted, it is not certain that the client calls the hook. The identity is then not
// remembered.
type identity struct {
	hook  sync.Once
	dials pipeline.Dials // of the user's client

	turn     chan struct{} // has an element while a caller uses the next fields
	known    bool
	at       int64     // the number of connections that were opened before the INFO was sent
	answered time.Time // the arrival of the answer
	info     store.NodeInfo
}

// Node implements store.Node for a *redis.Client. It sends INFO, which needs the right
// +info. Node remembers the answer. It sends INFO again only after a new connection was
// opened, once for all concurrent callers. A hook on the client counts the connections.
// Until the hook has counted a connection, each call of Node sends INFO. For a client of
// WithTimeout, and for a client with an earlier hook that dials itself, that is always.
// An earlier hook must not dial itself only sometimes: Node does not notice such a
// connection.
//
// Node does not notice a proxy that replaces the server behind open connections. It can
// describe the earlier server if the client's address leads to another server while the
// earlier one still answers, or if a dial that began before the first Node ends after a
// restart.
//
// Node fails with store.ErrUnsupported for any other client, without the right, and if
// the answer has no identity.
func (s *Store) Node(ctx context.Context) (store.NodeInfo, error) {
	client, ok := s.client.(*redis.Client)
	if !ok {
		return store.NodeInfo{}, fmt.Errorf("redisstore: node: the client is not for one server: %w", store.ErrUnsupported)
	}
	d := &s.identity
	d.hook.Do(func() { client.AddHook(&d.dials) })
	opened := func() int64 { return d.dials.Opened() + s.pipeline.Opened() }
	dials := opened()
	// After the wait, a caller usually finds the answer that another caller received.
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return store.NodeInfo{}, s.unanswered(ctx, "node", pipeline.Cause(ctx))
	}
	if d.known && d.at >= dials && d.dials.Opened() > 0 && !fresh.Wanted(ctx) {
		info := d.info
		info.Age += time.Since(d.answered)
		return info, nil
	}
	at := opened()
	info, err := s.info(ctx)
	if err == nil {
		d.known, d.at, d.answered, d.info = true, at, time.Now(), info
	}
	return info, err
}

func (s *Store) info(ctx context.Context) (store.NodeInfo, error) {
	text, err := s.pipeline.Info(ctx)
	switch {
	case isReply(err, "NOPERM"), isReply(err, "unknown command"):
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
