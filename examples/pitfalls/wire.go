package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// wire has the connections of one process to Redis. A paused process sends nothing
// until it is resumed, and then sends its pending commands. A crashed process never
// sends anything again.
type wire struct {
	mu    sync.Mutex
	moved *sync.Cond // paused or dead has changed
	conns []net.Conn

	paused bool
	dead   bool
	atGate int // commands that a pause delays
	left   int // commands that may be sent before the crash; below 0: any number
}

var errCrashed = errors.New("this process has crashed")

func newWire() *wire {
	w := &wire{left: -1}
	w.moved = sync.NewCond(&w.mu)
	return w
}

// pause delays all commands that the process sends from now on, including commands in
// the background.
func (w *wire) pause() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = true
}

func (w *wire) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = false
	w.moved.Broadcast()
}

// sending reports whether a pause is delaying a command.
func (w *wire) sending() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.atGate > 0
}

// crash cuts the process off for good, as if it had died.
func (w *wire) crash() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.die()
}

// crashAfter makes the process crash when it has sent n more commands and is about to
// send another command.
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

// pass waits until a command may be sent. It returns an error if the process has
// crashed.
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

// wired is a connection over a wire. go-redis writes a command, or a pipeline, in one
// call.
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
