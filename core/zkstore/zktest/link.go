package zktest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Link is the way from one server of an ensemble to another, if that leads. It
// carries bytes as they are, and ends with the test.
type Link struct {
	addr, target string

	listen net.Listener
	wg     sync.WaitGroup

	mu     sync.Mutex
	open   chan struct{} // closed while bytes pass
	ended  chan struct{}
	closed bool
	conns  map[net.Conn]struct{}
}

func newLink(t testing.TB, target string) *Link {
	t.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("zktest: link: %v", err)
	}
	l := &Link{
		addr: listen.Addr().String(), target: target, listen: listen,
		open: make(chan struct{}), ended: make(chan struct{}), conns: make(map[net.Conn]struct{}),
	}
	close(l.open)
	l.wg.Go(l.accept)
	t.Cleanup(func() {
		l.mu.Lock()
		l.closed = true
		close(l.ended)
		for c := range l.conns {
			c.Close()
		}
		l.mu.Unlock()
		listen.Close()
		l.wg.Wait()
	})
	return l
}

// Cut lets nothing pass in either direction, while connections stay open.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
		l.open = make(chan struct{})
	default:
	}
}

// Mend ends a Cut; what was sent meanwhile is delivered.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
	default:
		close(l.open)
	}
}

func (l *Link) accept() {
	for {
		from, err := l.listen.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() { l.carry(from) })
	}
}

func (l *Link) carry(from net.Conn) {
	to, err := l.dial()
	if err != nil {
		from.Close()
		return
	}
	l.mu.Lock()
	if l.closed {
		from.Close()
		to.Close()
	}
	l.conns[from], l.conns[to] = struct{}{}, struct{}{}
	l.mu.Unlock()
	l.wg.Go(func() { l.pump(from, to) })
	l.wg.Go(func() { l.pump(to, from) })
}

// dial waits a little for a server that has been elected and does not listen
// yet: who is accepted and then turned away elects anew.
func (l *Link) dial() (to net.Conn, err error) {
	for range 100 {
		if to, err = net.Dial("tcp", l.target); err == nil {
			return to, nil
		}
		select {
		case <-l.ended:
			return nil, err
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil, err
}

func (l *Link) pump(from, to net.Conn) {
	defer func() {
		from.Close()
		to.Close()
		l.mu.Lock()
		delete(l.conns, from)
		l.mu.Unlock()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		l.mu.Lock()
		open := l.open
		l.mu.Unlock()
		select {
		case <-open:
		case <-l.ended:
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
