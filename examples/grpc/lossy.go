package main

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// lossy is a network that breaks at the worst time: after a call has had its effect, and
// before its reply was sent. The client cannot distinguish this from a call that never
// arrived.
type lossy struct {
	net.Listener
	drops int // number of replies to drop per order

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

// drop is the outermost interceptor. After drop returns, the server only has to send
// the reply.
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

// seen returns the numbers of received tries and of dropped replies.
func (l *lossy) seen() (tries, dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.dropped {
		dropped += n
	}
	return l.tries, dropped
}
