package pgtest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy stands before a server, sees every statement, and does to some of them
// what a test wants. It ends with the test.
type Proxy struct {
	Port int

	server   string
	listener net.Listener
	wg       sync.WaitGroup
	gate     sync.RWMutex // held for writing while the line is stalled
	stalled  atomic.Bool
	over     chan struct{} // closed at the end, for what is held

	mu      sync.Mutex
	links   map[*link]bool
	faults  []*Fault
	queries []string
	trips   int
	closed  bool
}

// NewProxy puts a proxy before the server at port.
func NewProxy(t testing.TB, port int) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	p := &Proxy{
		Port: l.Addr().(*net.TCPAddr).Port, server: fmt.Sprintf("127.0.0.1:%d", port),
		listener: l, links: make(map[*link]bool), over: make(chan struct{}),
	}
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// URL is how to connect through the proxy.
func (p *Proxy) URL(parameters ...string) string { return address(p.Port, parameters) }

// Inject makes the next statement that contains all parts suffer a fault.
func (p *Proxy) Inject(kind Kind, parts ...string) *Fault {
	f := &Fault{
		kind: kind, parts: parts,
		bit: make(chan struct{}), deliver: make(chan struct{}), arrived: make(chan struct{}),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return f
}

// Stall stops everything on the line, without a word, until Flow.
func (p *Proxy) Stall() {
	p.gate.Lock()
	p.stalled.Store(true)
}

// Flow ends a Stall.
func (p *Proxy) Flow() {
	if p.stalled.CompareAndSwap(true, false) {
		p.gate.Unlock()
	}
}

// Cut breaks all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Forget empties what Queries and Trips tell.
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queries, p.trips = nil, 0
}

// Trips is how often a client has sent something for which it then waits.
func (p *Proxy) Trips() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trips
}

// Queries are the statements that were sent and contain all parts.
func (p *Proxy) Queries(parts ...string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.queries), func(q string) bool { return !contains(q, parts) })
}

func contains(q string, parts []string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(q, part) })
}

// saw notes a statement and returns its fault, if it has one.
func (p *Proxy) saw(q string) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queries = append(p.queries, q)
	for i, f := range p.faults {
		if contains(q, f.parts) {
			p.faults = slices.Delete(p.faults, i, i+1)
			return f
		}
	}
	return nil
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.DialTimeout("tcp", p.server, 5*time.Second)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{proxy: p, client: client, server: server}
		p.mu.Lock()
		if p.closed {
			l.close()
		}
		p.links[l] = true
		p.mu.Unlock()
		p.wg.Go(func() {
			var both sync.WaitGroup
			both.Go(l.up)
			both.Go(l.down)
			both.Wait()
			l.close()
			p.mu.Lock()
			delete(p.links, l)
			p.mu.Unlock()
		})
	}
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for l := range p.links {
		l.close()
	}
	p.mu.Unlock()
	close(p.over)
	p.Flow() // a test that failed may have left it stalled
	p.wg.Wait()
}

// link is one connection of a client.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	mu             sync.Mutex
	fault          *Fault // of the statement that the server works on
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// up passes on what the client says.
func (l *link) up() {
	defer func() {
		l.mu.Lock()
		held := l.fault != nil && l.fault.kind == HoldRequest
		l.mu.Unlock()
		if !held {
			_ = l.server.Close()
		}
	}()
	if l.pass(l.server, l.client, 0) != nil { // how it introduces itself, without a type
		return
	}
	for {
		typ, message, err := read(l.client, 1)
		if err != nil {
			return
		}
		if typ == 'Q' || typ == 'S' {
			l.proxy.mu.Lock()
			l.proxy.trips++
			l.proxy.mu.Unlock()
		}
		if typ == 'Q' {
			if f := l.proxy.saw(string(message[5 : len(message)-1])); f != nil {
				l.mu.Lock()
				l.fault = f
				l.mu.Unlock()
				close(f.bit)
				if f.kind == LoseRequest {
					l.close()
					return
				}
				if f.kind == HoldRequest {
					select {
					case <-f.deliver:
					case <-l.proxy.over:
						return
					}
				}
			}
		}
		if l.write(l.server, message) != nil {
			return
		}
	}
}

// down passes on what the server says.
func (l *link) down() {
	defer l.close()
	for {
		typ, message, err := read(l.server, 1)
		if err != nil {
			return
		}
		l.mu.Lock()
		f := l.fault
		l.mu.Unlock()
		if f == nil {
			if l.write(l.client, message) != nil {
				return
			}
			continue
		}
		if typ != 'Z' { // it is done, and ready for the next one
			continue
		}
		switch f.kind {
		case LoseReply:
			return
		case HoldRequest:
			close(f.arrived)
			return
		}
	}
}

func (l *link) pass(to io.Writer, from io.Reader, typed int) error {
	_, message, err := read(from, typed)
	if err != nil {
		return err
	}
	return l.write(to, message)
}

func (l *link) write(to io.Writer, message []byte) error {
	l.proxy.gate.RLock()
	defer l.proxy.gate.RUnlock()
	_, err := to.Write(message)
	return err
}

// read reads one message, with its head.
func read(from io.Reader, typed int) (typ byte, message []byte, err error) {
	head := make([]byte, 4+typed)
	if _, err := io.ReadFull(from, head); err != nil {
		return 0, nil, err
	}
	size := int(binary.BigEndian.Uint32(head[typed:]))
	if size < 4 || size > 1<<28 {
		return 0, nil, fmt.Errorf("a message of %d bytes", size)
	}
	message = append(head, make([]byte, size-4)...)
	_, err = io.ReadFull(from, message[len(head):])
	return head[0], message, err
}
