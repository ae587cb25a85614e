package zktest

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
)

// Fault is what a proxy does to a request.
type Fault int

// The faults.
const (
	Pass        Fault = iota
	LoseRequest       // the server does not see it; the connection breaks
	LoseReply         // the server does it; the connection breaks before the reply
)

// Proxy stands between clients and a server. It passes everything on as it is,
// but for the faults that a test wants. It ends with the test, and is safe for
// concurrent use.
type Proxy struct {
	Addr string // where clients connect to

	target string
	listen net.Listener
	wg     sync.WaitGroup

	mu     sync.Mutex
	decide func(Request) Fault
	links  map[*link]struct{}
	open   chan struct{} // closed while there is no partition
	down   bool
	closed bool
	seen   []Request
	events int
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	mu             sync.Mutex
	lose           map[int32]bool // replies that are to be lost, by xid
}

func (l *link) sever() {
	l.client.Close()
	l.server.Close()
}

// NewProxy returns a proxy before the server at addr.
func NewProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("zktest: proxy: %v", err)
	}
	p := &Proxy{
		Addr: listen.Addr().String(), target: addr, listen: listen,
		links: make(map[*link]struct{}), open: make(chan struct{}),
	}
	close(p.open)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		p.Heal()
		listen.Close()
		p.Sever()
		p.wg.Wait()
	})
	return p
}

// OnRequest makes decide choose what befalls each request, pings excepted; nil
// lets everything pass.
func (p *Proxy) OnRequest(decide func(Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide = decide
}

// Sever closes all present connections. What was under way is lost.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.sever()
	}
}

// Down cuts the server off: connections are closed, and new ones refused.
func (p *Proxy) Down() {
	p.mu.Lock()
	p.down = true
	p.mu.Unlock()
	p.Sever()
}

// Up ends Down.
func (p *Proxy) Up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

// Partition lets nothing pass in either direction, while connections stay open.
func (p *Proxy) Partition() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		p.open = make(chan struct{})
	default:
	}
}

// Heal ends a partition; what was sent meanwhile is delivered.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

// Requests returns what clients have sent since the last Forget, without
// handshakes, credentials and pings.
func (p *Proxy) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Request(nil), p.seen...)
}

// Events is how many watches have fired since the last Forget.
func (p *Proxy) Events() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.events
}

// Forget empties Requests and Events.
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen, p.events = nil, 0
}

func (p *Proxy) passage() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

func (p *Proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refuse := p.down || p.closed
		p.mu.Unlock()
		if refuse {
			client.Close()
			continue
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		l := &link{client: client, server: server, lose: make(map[int32]bool)}
		p.mu.Lock()
		refuse = p.down || p.closed
		p.links[l] = struct{}{}
		p.mu.Unlock()
		if refuse {
			l.sever()
		}
		p.wg.Go(func() {
			var both sync.WaitGroup
			both.Go(func() { p.pump(l, client, server, p.request) })
			both.Go(func() { p.pump(l, server, client, p.reply) })
			both.Wait()
			p.mu.Lock()
			delete(p.links, l)
			p.mu.Unlock()
		})
	}
}

// pump carries frames from one side to the other until the link breaks.
func (p *Proxy) pump(l *link, from, to net.Conn, look func(l *link, first bool, frame []byte) bool) {
	defer l.sever()
	for first := true; ; first = false {
		frame := make([]byte, 4)
		if _, err := io.ReadFull(from, frame); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(frame)
		if n > 8<<20 {
			return
		}
		frame = append(frame, make([]byte, n)...)
		if _, err := io.ReadFull(from, frame[4:]); err != nil {
			return
		}
		<-p.passage()
		if !look(l, first, frame[4:]) {
			return
		}
		if _, err := to.Write(frame); err != nil {
			return
		}
	}
}

// request notes a client's frame and tells whether it passes.
func (p *Proxy) request(l *link, first bool, b []byte) bool {
	if first || len(b) < 8 {
		return true
	}
	xid, r := int32(binary.BigEndian.Uint32(b)), parse(b)
	if r.Op == Ping || r.Op == Auth {
		return true
	}
	p.mu.Lock()
	p.seen = append(p.seen, r)
	decide := p.decide
	p.mu.Unlock()
	if decide == nil {
		return true
	}
	switch decide(r) {
	case LoseRequest:
		return false
	case LoseReply:
		l.mu.Lock()
		l.lose[xid] = true
		l.mu.Unlock()
	}
	return true
}

// reply notes a server's frame and tells whether it passes.
func (p *Proxy) reply(l *link, first bool, b []byte) bool {
	if first || len(b) < 4 {
		return true
	}
	xid := int32(binary.BigEndian.Uint32(b))
	if xid == -1 {
		p.mu.Lock()
		p.events++
		p.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.lose[xid]
}
