package sim_test

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// conn is the client's end of a link.
type conn struct {
	net.Conn
	link *link
	once sync.Once
}

// Write does not block for long. Like a socket, the link buffers bytes that were not
// read yet.
func (c *conn) Write(p []byte) (int, error) {
	select {
	case <-c.link.broken:
		return 0, io.ErrClosedPipe
	default:
	}
	select {
	case c.link.out <- append([]byte(nil), p...):
		return len(p), nil
	case <-c.link.broken:
		return 0, io.ErrClosedPipe
	}
}

func (c *conn) SetWriteDeadline(time.Time) error { return nil }
func (c *conn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }

// Close ends the link for the client. Bytes that the client has written are still
// delivered.
func (c *conn) Close() error {
	c.once.Do(func() { close(c.link.gone) })
	return c.Conn.Close()
}

// open is a client's conn that go-redis can check before it reuses the connection. The
// check reports whether the server has closed the connection. go-redis makes this check
// on a plain socket, and not on TLS.
type open struct{ *conn }

// SyscallConn implements syscall.Conn. It is the only further method that go-redis needs.
func (o open) SyscallConn() (syscall.RawConn, error) {
	select {
	case <-o.link.broken:
		return nil, io.EOF
	default:
		return quiet{}, nil
	}
}

// quiet is a socket without unread input.
type quiet struct{}

func (quiet) Control(func(uintptr)) error    { return nil }
func (quiet) Read(func(uintptr) bool) error  { return nil }
func (quiet) Write(func(uintptr) bool) error { return nil }

// link is one connection between a client and the server.
type link struct {
	network *network
	client  int
	server  net.Conn
	back    net.Conn      // the connection to the client
	out     chan []byte   // bytes from the client
	gone    chan struct{} // closed when the client has closed
	broken  chan struct{} // closed when the network breaks the link
	once    sync.Once

	greeted atomic.Bool  // the client has sent a command after the greetings
	silent  atomic.Bool  // nothing passes any more
	mute    atomic.Bool  // replies do not pass any more
	closing atomic.Bool  // the link closes when the next reply arrives, and does not deliver it
	slow    atomic.Int64 // the time until which replies are delayed
}

func (l *link) run() {
	replies := make(chan []byte, 10000)
	l.network.wg.Go(l.requests)
	l.network.wg.Go(func() { l.read(replies) })
	l.network.wg.Go(func() { l.deliver(replies) })
}

func (l *link) cut() {
	l.once.Do(func() { close(l.broken) })
	_ = l.back.Close()
	_ = l.server.Close()
}

// latency waits for the transmission time of a message.
func latency() { time.Sleep(50*time.Microsecond + rand.N(time.Millisecond)) }

// requests passes commands on until the client has closed and all its bytes are
// delivered.
func (l *link) requests() {
	defer func() {
		_ = l.server.Close()
		l.network.mu.Lock()
		delete(l.network.links, l)
		l.network.mu.Unlock()
	}()
	var buf []byte
	for {
		f, rest, whole := cutFrame(buf)
		if whole {
			buf = rest
			if !l.request(f) {
				return
			}
			continue
		}
		more := l.next()
		if more == nil {
			return
		}
		buf = append(append([]byte(nil), buf...), more...)
	}
}

// next returns the client's next bytes, or nil if no more will come.
func (l *link) next() []byte {
	select {
	case p := <-l.out:
		return p
	default:
	}
	select {
	case p := <-l.out:
		return p
	case <-l.broken:
		return nil
	case <-l.gone:
	}
	select {
	case p := <-l.out:
		return p
	default:
		return nil
	}
}

// request applies the plan's fault to a command and passes the command on. It returns
// false if the link is broken.
func (l *link) request(f frame) bool {
	if l.silent.Load() {
		return true
	}
	// go-redis starts a subscription's connection under a mutex. Virtual time stands
	// still while a goroutine waits for a mutex. Therefore greetings take no time.
	if !l.greeted.Load() && f.greeting() {
		_, err := l.server.Write(f.raw)
		return err == nil
	}
	l.greeted.Store(true)
	latency()
	n := l.network
	what, long := n.next(l.client, f)
	n.pass(l.client)
	switch what {
	case dropRequest:
		n.bite(what)
		l.silent.Store(true)
		return true
	case closeRequest:
		n.bite(what)
		l.cut()
		return false
	case dropReply:
		l.mute.Store(true)
	case closeReply:
		l.closing.Store(true)
	case delayRequest:
		n.bite(what)
		time.Sleep(long)
	case delayReply:
		l.slow.Store(int64(n.now() + long))
	case duplicate:
		n.double(f, long/4)
	}
	_, err := l.server.Write(f.raw)
	return err == nil
}

// read reads the server's replies at once, independently of the requests. This matters
// because the server does nothing else while it waits for a subscriber to read.
func (l *link) read(replies chan<- []byte) {
	defer close(replies)
	buf := make([]byte, 1<<16)
	for {
		n, err := l.server.Read(buf)
		if err != nil {
			return
		}
		replies <- append([]byte(nil), buf[:n]...)
	}
}

func (l *link) deliver(replies <-chan []byte) {
	defer l.back.Close()
	n := l.network
	for reply := range replies {
		n.inspect()
		if !l.greeted.Load() {
			_, _ = l.back.Write(reply)
			continue
		}
		latency()
		n.pass(l.client)
		if left := time.Duration(l.slow.Load()) - n.now(); left > 0 {
			n.bite(delayReply)
			time.Sleep(left)
		}
		switch {
		case l.silent.Load():
			continue
		case l.mute.Load():
			n.bite(dropReply)
			l.silent.Store(true)
			continue
		case l.closing.Load():
			n.bite(closeReply)
			l.cut()
			continue
		}
		_, _ = l.back.Write(reply) // an error means that the client has closed
	}
}
