package testserver

import (
	"bufio"
	"net"
	"slices"
	"sync"
	"time"
)

// link is one connection through the proxy.
type link struct {
	proxy  *Proxy
	number int
	wire   wire
	client net.Conn
	silent chan struct{} // closed when nothing may pass any more
	ended  chan struct{} // closed when both sides are closed
	hush   sync.Once
	end    sync.Once

	mu      sync.Mutex // also serializes writes to the client
	server  net.Conn
	pending []*pending // requests whose replies have not arrived
}

// pending is a request that waits for its reply. If known is set, the proxy already has
// the reply and the server does not receive the request.
type pending struct {
	id    int32
	fault *Fault // the fault that affects the reply
	done  *Fault // the fault that is notified of the server's answer
	known []byte
	skip  bool   // the reply is discarded
	reply []byte // the bytes received so far of a reply that a fault hits
}

func newLink(p *Proxy, number int, client net.Conn) *link {
	return &link{
		proxy: p, number: number, wire: p.wire(), client: client,
		silent: make(chan struct{}), ended: make(chan struct{}),
	}
}

// run passes messages on until both sides are closed.
func (l *link) run() {
	defer l.sever()
	// During a partition the proxy does not connect to the server, although it has
	// accepted the client's connection.
	if !l.passes(time.Now()) {
		return
	}
	server := l.dial()
	if server == nil {
		return
	}
	l.mu.Lock()
	l.server = server
	l.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(l.replies)
	l.requests()
	// The server must still be able to read the last requests. Close could discard them.
	_ = server.(*net.TCPConn).CloseWrite()
	wg.Wait()
}

// maxInFlight is the maximum number of messages in flight per direction. Further
// messages stay in the sender's buffers.
const maxInFlight = 256

// arrivals returns a channel with the messages of one direction. It reads each message
// when the message arrives, so that delayed messages do not wait for each other. The
// channel is closed after the last message.
func (l *link) arrivals(conn net.Conn, read func(*bufio.Reader) (message, error)) <-chan message {
	c := make(chan message, maxInFlight)
	l.proxy.wg.Go(func() {
		defer close(c)
		r := bufio.NewReader(conn)
		for {
			m, err := read(r)
			if err != nil {
				return
			}
			m.came = time.Now()
			select {
			case c <- m:
			case <-l.ended:
				return
			case <-l.proxy.quit:
				return
			}
		}
	})
	return c
}

// dial connects to the server. It returns nil if the server does not listen within the
// time l.proxy.dials, or if the link ended.
func (l *link) dial() net.Conn {
	l.proxy.mu.Lock()
	target := l.proxy.target
	l.proxy.mu.Unlock()
	for deadline := time.Now().Add(l.proxy.dials); ; {
		server, err := net.DialTimeout("tcp", target, 5*time.Second)
		if err == nil {
			return server
		}
		if time.Now().After(deadline) {
			return nil
		}
		again := make(chan struct{})
		time.AfterFunc(20*time.Millisecond, func() { close(again) })
		if !l.wait(again) {
			return nil
		}
	}
}

func (l *link) sever() {
	l.end.Do(func() { close(l.ended) })
	_ = l.client.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server != nil {
		_ = l.server.Close()
	}
}

// wait waits for c, and returns false if the link ended first.
func (l *link) wait(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-l.ended:
		return false
	case <-l.proxy.quit:
		return false
	}
}

// passes waits until a message that arrived at the given time may pass. It returns false
// if the link ends first.
func (l *link) passes(came time.Time) bool {
	lag, drop := l.proxy.fate()
	if drop {
		l.sever()
		return false
	}
	open, delay := l.proxy.passage()
	if delay = max(delay, lag-time.Since(came)); delay > 0 {
		arrives := make(chan struct{})
		time.AfterFunc(delay, func() { close(arrives) })
		if !l.wait(arrives) {
			return false
		}
		open, _ = l.proxy.passage()
	}
	return l.wait(open)
}

// fall makes the link silent. Both sides stay open until the client closes.
func (l *link) fall() { l.hush.Do(func() { close(l.silent) }) }

func (l *link) fallen() bool {
	select {
	case <-l.silent:
		return true
	default:
		return false
	}
}

// requests passes the client's messages on until the client closes.
func (l *link) requests() {
	for m := range l.arrivals(l.client, l.wire.request) {
		if l.fallen() {
			continue
		}
		var fault *Fault
		if m.request != nil {
			m.request.Link = l.number
			fault = l.proxy.note(*m.request, len(m.raw))
		}
		if !l.passes(m.came) || !l.request(m, fault) {
			return
		}
	}
}

// request passes a request on and applies its fault. It returns false if the link must
// be closed.
func (l *link) request(m message, fault *Fault) bool {
	if fault == nil {
		l.pass(m, pending{})
		return true
	}
	switch fault.action.kind {
	case dropRequest:
		l.fall()
	case closeRequest:
		l.sever()
		return false
	case holdRequest:
		if !l.wait(fault.free) {
			return false
		}
		l.pass(m, pending{done: fault})
	case doubleRequest:
		l.pass(m, pending{})
		l.pass(m, pending{done: fault, skip: true})
	case replaceRequest:
		l.answer([]byte(fault.action.text))
	default:
		l.pass(m, pending{fault: fault, done: fault})
	}
	return true
}

// pass sends a message to the server. If the message is a request, pass records that its
// reply is pending.
func (l *link) pass(m message, p pending) {
	if m.request != nil {
		p.id = m.id
		l.mu.Lock()
		l.pending = append(l.pending, &p)
		l.mu.Unlock()
	}
	_, _ = l.server.Write(m.raw)
}

// answer sends raw to the client as the reply to a request that the server does not
// receive. raw follows the replies for which the client still waits.
func (l *link) answer(raw []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) > 0 {
		l.pending = append(l.pending, &pending{known: raw})
		return
	}
	_, _ = l.client.Write(raw)
}

// replies passes the server's messages on until the server closes.
func (l *link) replies() {
	// When the server closes, the client's connection is closed too. The reverse is
	// different: after the client closes, its earlier requests still reach the server.
	defer l.client.Close()
	for m := range l.arrivals(l.server, l.wire.reply) {
		if m.event {
			l.proxy.mu.Lock()
			l.proxy.events++
			l.proxy.mu.Unlock()
		}
		if !l.passes(m.came) {
			return
		}
		if l.fallen() {
			continue
		}
		if !l.reply(m) {
			return
		}
	}
}

// reply passes one message of the server on, and then the proxy's own replies that
// follow it. It returns false if the link must be closed.
func (l *link) reply(m message) bool {
	p := l.waiting(m)
	if p == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		_, _ = l.client.Write(m.raw)
		return true
	}
	raw := m.raw
	if p.fault != nil { // the fault hits the whole reply
		p.reply = append(p.reply, raw...)
		if raw = p.reply; !m.last {
			return true
		}
	}
	if p.done != nil && m.last {
		p.done.answered()
	}
	if p.fault != nil {
		switch p.fault.action.kind {
		case dropReply:
			l.fall()
			return true
		case closeReply:
			l.sever()
			return false
		case cutReply:
			l.mu.Lock()
			_, _ = l.client.Write(raw[:len(raw)/2])
			l.mu.Unlock()
			l.sever()
			return false
		case holdReply:
			if !l.wait(p.fault.free) {
				return false
			}
		case replaceReply:
			raw = []byte(p.fault.action.text)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !p.skip {
		_, _ = l.client.Write(raw)
	}
	if m.last {
		l.pending = slices.DeleteFunc(l.pending, func(other *pending) bool { return other == p })
	}
	for len(l.pending) > 0 && l.pending[0].known != nil {
		_, _ = l.client.Write(l.pending[0].known)
		l.pending = l.pending[1:]
	}
	return true
}

// waiting returns the request that m answers, or nil.
func (l *link) waiting(m message) *pending {
	if !m.answers {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pending {
		if p.id == m.id {
			return p
		}
	}
	return nil
}
