package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// wire is the way from one process to Redis. A process that is paused sends
// nothing until it is resumed, and then what it was about to send; one that has
// crashed never sends anything again.
type wire struct {
	mu    sync.Mutex
	moved *sync.Cond // paused or dead has changed
	conns []net.Conn

	paused bool
	dead   bool
	atGate int // commands that a pause holds back
	left   int // commands that may still go out before the crash; below 0: any number
}

var errCrashed = errors.New("this process has crashed")

func newWire() *wire {
	w := &wire{left: -1}
	w.moved = sync.NewCond(&w.mu)
	return w
}

// pause holds back what the process sends from now on, in the background too.
func (w *wire) pause() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = true
}

// resume ends a pause.
func (w *wire) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = false
	w.moved.Broadcast()
}

// sending tells whether a pause is holding something back.
func (w *wire) sending() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.atGate > 0
}

// crash cuts the process off for good, as the kernel does for one that died.
func (w *wire) crash() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.die()
}

// crashAfter has the process crash when it has sent n more commands and is about
// to send another.
func (w *wire) crashAfter(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = n
}

func (w *wire) crashed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}

func (w *wire) die() {
	w.dead = true
	for _, c := range w.conns {
		c.Close()
	}
	w.moved.Broadcast()
}

// pass returns when a command may go out, or says that it never will.
func (w *wire) pass() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.atGate++
	for w.paused && !w.dead {
		w.moved.Wait()
	}
	w.atGate--
	if w.left == 0 {
		w.die()
	}
	if w.dead {
		return errCrashed
	}
	if w.left > 0 {
		w.left--
	}
	return nil
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if w.crashed() {
		return nil, errCrashed
	}
	dialer := net.Dialer{Timeout: 5 * time.Second}
	c, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
	return &wired{c, w}, nil
}

// wired is a connection over a wire. go-redis writes a command, or a pipeline,
// at once.
type wired struct {
	net.Conn
	wire *wire
}

func (c *wired) Write(b []byte) (int, error) {
	if err := c.wire.pass(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
