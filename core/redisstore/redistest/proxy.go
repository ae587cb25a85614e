package redistest

import (
	"net"
	"sync"
	"testing"
)

// Proxy stands between clients and a server and knows commands and replies. It
// passes everything on as it is, but for the faults that a test injects. It
// ends with the test, and is safe for concurrent use.
type Proxy struct {
	Addr string // where clients connect to

	t      testing.TB
	listen net.Listener
	wg     sync.WaitGroup
	quit   chan struct{}

	mu     sync.Mutex
	target string
	faults []*Fault
	links  map[*link]struct{}
	open   chan struct{} // closed while there is no partition
	seen   []Command
	bytes  int64
	closed bool
}

// Command is one command that a client sent.
type Command struct {
	Name   string // in lower case
	Script string // "acquire", "extend" or "release" if it calls the store's script
	Args   []string
	Link   int // the number of its connection
}

// NewProxy returns a proxy before the server at addr.
func NewProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: proxy: %v", err)
	}
	p := &Proxy{
		Addr: l.Addr().String(), t: t, listen: l, target: addr,
		quit: make(chan struct{}), links: make(map[*link]struct{}), open: make(chan struct{}),
	}
	close(p.open)
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	close(p.quit)
	_ = p.listen.Close()
	p.Sever()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for n := 1; ; n++ {
		conn, err := p.listen.Accept()
		if err != nil {
			return
		}
		l := &link{proxy: p, number: n, client: conn, silent: make(chan struct{}), ended: make(chan struct{})}
		p.mu.Lock()
		closed := p.closed
		if !closed {
			p.links[l] = struct{}{}
		}
		p.mu.Unlock()
		if closed {
			conn.Close()
			return
		}
		p.wg.Go(func() {
			l.run()
			p.mu.Lock()
			delete(p.links, l)
			p.mu.Unlock()
		})
	}
}

// Inject has the action befall the commands that m selects, from now on. Of
// several faults for one command the earliest acts.
func (p *Proxy) Inject(m Match, a Action) *Fault {
	f := &Fault{match: m, action: a, fired: make(chan struct{}), free: make(chan struct{}), done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return f
}

// Remove takes a fault back. What it holds stays held until Deliver.
func (p *Proxy) Remove(f *Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.faults {
		if other == f {
			p.faults = append(p.faults[:i:i], p.faults[i+1:]...)
			return
		}
	}
}

// Times is how many commands the fault has befallen.
func (p *Proxy) Times(f *Fault) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return f.times
}

// note counts a command and returns the fault that befalls it, or nil.
func (p *Proxy) note(l *link, cmd *frame) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes += int64(len(cmd.raw))
	p.seen = append(p.seen, Command{Name: cmd.word(), Script: scriptName(cmd), Args: cmd.args, Link: l.number})
	for _, f := range p.faults {
		if f.match.matches(cmd) && f.take() {
			return f
		}
	}
	return nil
}

// Partition cuts the network: nothing passes in either direction, and
// connections stay open. What is sent meanwhile is delivered after Heal, as TCP
// does it.
func (p *Proxy) Partition() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		p.open = make(chan struct{})
	default:
	}
}

// Heal ends a partition.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

// passage returns what is closed while the network is whole.
func (p *Proxy) passage() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

// Sever closes all present connections on both sides. What was under way is
// lost.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.sever()
	}
}

// Retarget leads new connections to another server.
func (p *Proxy) Retarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// Commands returns what clients have sent since the proxy began, or since the
// last Forget, handshakes included.
func (p *Proxy) Commands() []Command {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Command(nil), p.seen...)
}

// Count is how many of Commands m selects; Skip and Times do not matter.
func (p *Proxy) Count(m Match) int {
	n := 0
	for _, c := range p.Commands() {
		if m.matches(&frame{args: c.Args}) {
			n++
		}
	}
	return n
}

// Bytes is how much clients have sent.
func (p *Proxy) Bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

// Forget empties Commands and Bytes.
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen, p.bytes = nil, 0
}

// Links is how many connections there are.
func (p *Proxy) Links() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}
