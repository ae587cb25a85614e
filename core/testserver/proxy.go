package testserver

import (
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// Proxy is a proxy between clients and a server. It passes all messages on unchanged,
// except for a test's faults. It stops with the test and is safe for concurrent use.
// None of its methods blocks.
type Proxy struct {
	Addr string // host:port for clients

	wire   func() wire   // called for each connection
	dials  time.Duration // the time for which the proxy retries a server that does not listen
	listen net.Listener
	wg     sync.WaitGroup
	quit   chan struct{}

	mu     sync.Mutex
	target string
	faults []*Fault
	decide func(Request) Action
	links  map[*link]struct{}
	open   chan struct{} // closed while there is no partition
	delay  time.Duration
	weak   Impairment
	toll   Toll
	down   bool
	closed bool
	seen   []Request
	bytes  int64
	events int
}

// NewProxy returns a proxy for the server at addr. It works with any protocol, and
// passes bytes on as they arrive. It does not recognize requests: faults of single
// requests never fire, and Requests stays empty.
func NewProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	return newProxy(t, addr, 0, func() wire { return bytesWire{} })
}

// NewRedisProxy returns a proxy for the Redis server at addr. The proxy speaks RESP2 and
// RESP3.
func NewRedisProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	return newProxy(t, addr, 0, func() wire { return new(redisWire) })
}

// NewZooKeeperProxy returns a proxy for the ZooKeeper server at addr. Pings and
// credentials are passed on and not counted.
func NewZooKeeperProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	return newProxy(t, addr, 0, func() wire { return new(zooKeeperWire) })
}

// NewPostgresProxy returns a proxy for the PostgreSQL server or the pgbouncer at addr.
// It counts the requests for which a client waits: a statement of the simple protocol as
// "query", and the end of a batch of the extended protocol as "sync". Connections must
// not be encrypted.
func NewPostgresProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	return newProxy(t, addr, 0, func() wire { return new(postgresWire) })
}

// NewHTTPProxy returns a proxy for the HTTP/1.1 server at addr. A Request has the method
// as its Name, the request target in Args and its path in Path. The proxy passes a
// message on when the message is complete, so bodies are not streamed. HEAD, upgrades
// and encrypted connections are not supported.
func NewHTTPProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	return newProxy(t, addr, 0, func() wire { return httpWire{} })
}

// NewMySQLProxy returns a proxy for the MariaDB or MySQL server at addr. It counts text
// statements as "query", prepared statements as "prepare" and "execute", and pings as
// "ping". Connections must be neither encrypted nor compressed.
func NewMySQLProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	return newProxy(t, addr, 0, func() wire { return new(mysqlWire) })
}

func newProxy(t testing.TB, addr string, dials time.Duration, wire func() wire) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("testserver: proxy: %v", err)
	}
	p := &Proxy{
		Addr: l.Addr().String(), wire: wire, dials: dials, listen: l, target: addr,
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
		l := newLink(p, n, conn)
		p.mu.Lock()
		refuse := p.down || p.closed
		if !refuse {
			p.links[l] = struct{}{}
		}
		p.mu.Unlock()
		if refuse {
			_ = conn.Close()
			continue
		}
		p.wg.Go(func() {
			l.run()
			p.mu.Lock()
			delete(p.links, l)
			p.mu.Unlock()
		})
	}
}

// Inject applies the action to the requests that m selects, from now on. If several
// faults select one request, the earliest fault whose Skip and Times allow it acts.
func (p *Proxy) Inject(m Match, a Action) *Fault {
	f := newFault(m, a)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return f
}

// OnRequest makes decide choose the action for each request that no injected fault
// takes. By default, and with nil, these requests pass. Several connections can call
// decide at once, and each call delays its connection.
func (p *Proxy) OnRequest(decide func(Request) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide = decide
}

// Remove removes a fault. The messages that the fault holds stay held until Deliver.
func (p *Proxy) Remove(f *Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = slices.DeleteFunc(p.faults, func(other *Fault) bool { return other == f })
}

// Times returns the number of requests that the fault has hit.
func (p *Proxy) Times(f *Fault) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return f.times
}

// note counts a request and returns the fault that hits it, or nil.
func (p *Proxy) note(r Request, size int) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes += int64(size)
	p.seen = append(p.seen, r)
	for _, f := range p.faults {
		if f.match.matches(r) && f.take() {
			return f
		}
	}
	if p.decide == nil {
		return nil
	}
	decide := p.decide
	p.mu.Unlock()
	action := decide(r)
	p.mu.Lock()
	if action == Pass {
		return nil
	}
	f := newFault(Match{}, action)
	f.take()
	return f
}

// Partition cuts the network. Nothing passes in either direction, and connections stay
// open. Messages sent during the partition are delivered after Heal, as with TCP.
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

// passage returns a channel that is closed while there is no partition, and the delay of
// a message.
func (p *Proxy) passage() (open <-chan struct{}, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open, p.delay
}

// Delay makes each message arrive later by d, in both directions. Later messages also
// wait for the delayed message. 0 ends the delay.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Impair sets the impairment of messages and connections from now on. If Proxy.Delay is
// set too, the longer of the two delays applies to a message. The zero Impairment ends
// the impairment.
func (p *Proxy) Impair(i Impairment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.weak = i
}

// Toll returns the effects of Impair since the proxy was created.
func (p *Proxy) Toll() Toll {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.toll
}

// fate returns the random delay of the next message, or reports that the message breaks
// its connection.
func (p *Proxy) fate() (lag time.Duration, drop bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.weak == (Impairment{}) {
		return 0, false
	}
	return p.weak.draw(&p.toll, rand.Float64)
}

// Sever closes all present connections on both sides. Messages in flight are lost.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.sever()
	}
}

// Down cuts the server off. It closes all connections, and closes new connections at
// once.
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

// Retarget directs new connections to another server.
func (p *Proxy) Retarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// Requests returns the requests that clients have sent since the proxy was created, or
// since the last Forget.
func (p *Proxy) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

// Count returns the number of Requests that m selects. It ignores m's Skip and Times.
func (p *Proxy) Count(m Match) int {
	n := 0
	for _, r := range p.Requests() {
		if m.matches(r) {
			n++
		}
	}
	return n
}

// Statements returns the SQL of those Requests that are queries and contain all parts.
func (p *Proxy) Statements(parts ...string) []string {
	var all []string
	for _, r := range p.Requests() {
		if Statement(parts...).matches(r) {
			all = append(all, r.Args[0])
		}
	}
	return all
}

// Bytes returns the total size of Requests.
func (p *Proxy) Bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

// Events returns the number of server messages that answer no request, since the proxy
// was created or since the last Forget. These are watches of ZooKeeper that fire, RESP3
// pushes of Redis, and notifications of PostgreSQL.
func (p *Proxy) Events() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.events
}

// Forget empties Requests, Bytes and Events.
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen, p.bytes, p.events = nil, 0, 0
}

// Links returns the number of open connections.
func (p *Proxy) Links() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}
