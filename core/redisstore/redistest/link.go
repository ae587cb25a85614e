package redistest

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// link is one connection through the proxy.
type link struct {
	proxy  *Proxy
	number int
	client net.Conn
	silent chan struct{} // closed when nothing is to pass any more
	ended  chan struct{} // closed when both sides are closed
	hush   sync.Once
	end    sync.Once

	mu      sync.Mutex
	server  net.Conn
	pending []pending // commands whose replies have not come
	free    bool      // replies do not follow commands: it is subscribed
}

// pending is a command that waits for its reply. If told is set the reply is
// known already and the server does not get the command.
type pending struct {
	fault *Fault // what befalls the reply
	done  *Fault // what befell the command
	told  []byte
	skip  bool // its reply is swallowed
}

// run passes on until both sides are closed.
func (l *link) run() {
	defer l.sever()
	p := l.proxy
	// During a partition not even a connection comes about, although the
	// client's side of it does.
	if !l.wait(p.passage()) {
		return
	}
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		return
	}
	l.mu.Lock()
	l.server = server
	l.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(l.replies)
	l.commands()
	// What was delivered late is still to be read by the server, which a plain
	// close could prevent.
	_ = server.(*net.TCPConn).CloseWrite()
	wg.Wait()
}

// sever closes both sides.
func (l *link) sever() {
	l.end.Do(func() { close(l.ended) })
	_ = l.client.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server != nil {
		_ = l.server.Close()
	}
}

// wait returns false if the link ended first.
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

// fall makes the link silent: both sides stay open until the client goes.
func (l *link) fall() { l.hush.Do(func() { close(l.silent) }) }

func (l *link) fallen() bool {
	select {
	case <-l.silent:
		return true
	default:
		return false
	}
}

// commands passes commands on until the client closes.
func (l *link) commands() {
	r := bufio.NewReader(l.client)
	for {
		cmd, err := readFrame(r)
		if err != nil {
			return
		}
		if l.fallen() {
			continue
		}
		fault := l.proxy.note(l, cmd)
		if !l.wait(l.proxy.passage()) {
			return
		}
		if fault == nil {
			l.pass(cmd, pending{})
			continue
		}
		switch fault.action.name {
		case DropRequest.name:
			l.fall()
		case CloseRequest.name:
			l.sever()
			return
		case HoldRequest.name:
			if !l.wait(fault.free) {
				return
			}
			l.pass(cmd, pending{done: fault})
		case DoubleRequest.name:
			l.pass(cmd, pending{})
			l.pass(cmd, pending{done: fault, skip: true})
		case "error reply":
			l.answer(errorFrame(fault.action.text))
		default:
			l.pass(cmd, pending{fault: fault, done: fault})
		}
	}
}

// pass sends a command to the server.
func (l *link) pass(cmd *frame, p pending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch cmd.word() {
	case "subscribe", "psubscribe", "ssubscribe", "monitor":
		l.free = true
	}
	l.pending = append(l.pending, p)
	_, _ = l.server.Write(cmd.raw)
}

// answer gives the client a reply in the server's place, in its turn.
func (l *link) answer(raw []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) > 0 && !l.free {
		l.pending = append(l.pending, pending{told: raw})
		return
	}
	_, _ = l.client.Write(raw)
}

// replies passes replies on until the server closes.
func (l *link) replies() {
	// When the server has closed, the client is told by a close; its own end
	// lets what it sent reach the server.
	defer l.client.Close()
	r := bufio.NewReader(l.server)
	for {
		reply, err := readFrame(r)
		if err != nil {
			return
		}
		if !l.wait(l.proxy.passage()) {
			return
		}
		if l.fallen() {
			continue
		}
		if !l.reply(reply) {
			return
		}
	}
}

// reply passes one reply on, and those that were given in the server's place
// after it. It is false if the link is to be closed.
func (l *link) reply(reply *frame) bool {
	l.mu.Lock()
	var p pending
	ordered := !l.free && reply.kind != '>' && len(l.pending) > 0
	if ordered {
		p = l.pending[0]
	}
	l.mu.Unlock()
	raw := reply.raw
	if p.done != nil {
		p.done.answered()
	}
	if p.fault != nil {
		switch p.fault.action.name {
		case DropReply.name:
			l.fall()
			return true
		case CloseReply.name:
			l.sever()
			return false
		case HoldReply.name:
			if !l.wait(p.fault.free) {
				return false
			}
		case GarbageReply.name:
			raw = []byte("?what\r\n")
		case UnrelatedReply.name:
			raw = []byte("*1\r\n*1\r\n:1\r\n")
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !p.skip {
		_, _ = l.client.Write(raw)
	}
	if ordered {
		l.pending = l.pending[1:]
	}
	for len(l.pending) > 0 && l.pending[0].told != nil {
		_, _ = l.client.Write(l.pending[0].told)
		l.pending = l.pending[1:]
	}
	return true
}
