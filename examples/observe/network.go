package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// network opens the connections to Redis, and can cut them. During a cut, new
// connections are refused. In the first part of a cut, requests on open connections
// still arrive, but no reply arrives. Then all connections break. So the outcome of the
// last requests is unknown.
type network struct {
	mu     sync.Mutex
	conns  map[*conn]struct{}
	cut    bool
	silent chan struct{} // closed when the connections break; nil while the network is not cut
}

var errCut = errors.New("the network is cut")

func newNetwork() *network { return &network{conns: make(map[*conn]struct{})} }

func (n *network) dial(ctx context.Context, kind, addr string) (net.Conn, error) {
	to, err := new(net.Dialer).DialContext(ctx, kind, addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		return nil, errors.Join(errCut, to.Close())
	}
	c := &conn{Conn: to, of: n}
	n.conns[c] = struct{}{}
	return c, nil
}

// cutFor cuts the network for d, or until ctx is done. In the first tenth of d, open
// connections only lose replies.
func (n *network) cutFor(ctx context.Context, d time.Duration) {
	n.mu.Lock()
	n.cut, n.silent = true, make(chan struct{})
	n.mu.Unlock()
	pause(ctx, d/10)
	n.mu.Lock()
	for c := range n.conns {
		_ = c.Conn.Close()
	}
	clear(n.conns)
	close(n.silent)
	n.mu.Unlock()
	pause(ctx, d-d/10)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut, n.silent = false, nil
}

type conn struct {
	net.Conn
	of *network
}

// Read discards data that arrives while the network is cut. It then blocks until the
// connection breaks, and returns errCut.
func (c *conn) Read(b []byte) (int, error) {
	got, err := c.Conn.Read(b)
	c.of.mu.Lock()
	silent := c.of.silent
	c.of.mu.Unlock()
	if silent == nil || err != nil {
		return got, err
	}
	<-silent
	return 0, errCut
}

func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
