package main

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// lossy is a network that breaks at the worst moment: when a call has had its
// effect, and its reply was not sent yet. The client cannot tell that from a
// call that never arrived.
type lossy struct {
	net.Listener
	drops int // replies to drop for each order

	mu      sync.Mutex
	conns   map[string]net.Conn // by the client's address
	dropped map[string]int      // by order
	tries   int
}

func newLossy(l net.Listener, drops int) *lossy {
	return &lossy{Listener: l, drops: drops, conns: make(map[string]net.Conn), dropped: make(map[string]int)}
}

func (l *lossy) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c.RemoteAddr().String()] = c
	return c, nil
}

// drop is the outermost interceptor: after it come only the bytes of the reply.
func (l *lossy) drop(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	reply, err := next(ctx, req)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tries++
	order := req.(interface{ GetOrder() string }).GetOrder()
	if p, ok := peer.FromContext(ctx); ok && err == nil && l.dropped[order] < l.drops {
		l.dropped[order]++
		_ = l.conns[p.Addr.String()].Close()
	}
	return reply, err
}

// seen is how many tries arrived, and how many replies were dropped.
func (l *lossy) seen() (tries, dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.dropped {
		dropped += n
	}
	return l.tries, dropped
}
