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
// new connection. A connection that was open before the server was asked, and still
// works, leads to the same run of the server.
type identity struct {
	hook  sync.Once
	dials atomic.Int64 // the number of connections that were opened

	mu     sync.Mutex
	known  bool
	at     int64 // the value of dials before the server was asked
	asked  time.Time
	info   store.NodeInfo
	asking *inquiry // the inquiry in flight, or nil
}

// inquiry is one request for the server's identity, which all callers share.
type inquiry struct {
	at   int64         // the value of dials before it
	done chan struct{} // closed when the answer is known
	info store.NodeInfo
	err  error
}

// Node implements store.Node for a *redis.Client. It sends INFO, for which the user
// needs the right. A hook on the client counts its dials. Node sends INFO only after
// the client has dialed, and once for all concurrent callers. It does not notice a
// proxy that keeps its clients' connections while it replaces the server behind them.
// For a Cluster, which is many servers, Node fails with store.ErrUnsupported.
func (s *Store) Node(ctx context.Context) (store.NodeInfo, error) {
	client, ok := s.client.(*redis.Client)
	if !ok {
		return store.NodeInfo{}, fmt.Errorf("redisstore: node: the client is not for one server: %w", store.ErrUnsupported)
	}
	d := &s.identity
	d.hook.Do(func() { client.AddHook(dialHook{&d.dials}) })
	dials := d.dials.Load()
	for {
		info, l, ours := d.join(dials)
		if l == nil {
			return info, nil
		}
		if ours {
			s.ask(ctx, client, l)
		}
		select {
		case <-l.done:
		case <-ctx.Done():
			return store.NodeInfo{}, s.unanswered(ctx, "node", context.Cause(ctx))
		}
		// Another caller's inquiry began too early, or failed when that caller's ctx
		// was done.
		if ours || l.err == nil && l.at >= dials {
			return l.info, l.err
		}
	}
}

// join returns the known answer if the client has not dialed since. Otherwise it
// returns the inquiry in flight, or a new one that the caller has to make.
func (d *identity) join(dials int64) (info store.NodeInfo, l *inquiry, ours bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known && d.at >= dials {
		info = d.info
		info.Age += time.Since(d.asked)
		return info, nil, false
	}
	if d.asking == nil {
		d.asking, ours = &inquiry{at: d.dials.Load(), done: make(chan struct{})}, true
	}
	return store.NodeInfo{}, d.asking, ours
}

// ask asks the server for its identity, and records the answer.
func (s *Store) ask(ctx context.Context, client *redis.Client, l *inquiry) {
	d := &s.identity
	asked := time.Now()
	l.info, l.err = s.info(ctx, client)
	d.mu.Lock()
	defer d.mu.Unlock()
	if l.err == nil {
		d.known, d.at, d.asked, d.info = true, l.at, asked, l.info
	}
	d.asking = nil
	close(l.done)
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

// parseNode parses the reply of INFO.
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
			// The server subtracts two readings of a clock of whole seconds, so the
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
