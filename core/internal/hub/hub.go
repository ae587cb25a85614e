// Package hub shares one connection that listens for wake-ups among all watches of a
// store.
package hub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrClosed is returned by Watch after Close.
var ErrClosed = errors.New("the store is closed")

// keep is the minimum time for which a connection without watches stays open.
const keep = time.Minute

// Hub manages the watches of a store. Each watch has data of type D, which the Hub's
// mutex guards. The first watch opens a connection. After the connection breaks, the
// next watch opens another connection. A Hub is safe for concurrent use.
type Hub[D any] struct {
	listen func(ctx context.Context, l *Listener[D]) error

	mu     sync.Mutex
	on     *Listener[D] // nil if there is no connection
	closed bool
	wg     sync.WaitGroup
}

// New returns a Hub. listen opens a connection and calls Live and Wake of l. listen
// returns the reason when the connection closes. It must return soon after ctx is done.
// It may panic.
func New[D any](listen func(ctx context.Context, l *Listener[D]) error) *Hub[D] {
	return &Hub[D]{listen: listen}
}

// Listener is one connection that receives wake-ups.
type Listener[D any] struct {
	hub    *Hub[D]
	live   chan struct{} // closed when the connection receives wake-ups
	ended  chan struct{} // closed after the connection is closed and err is set
	err    error
	cancel context.CancelFunc

	// The hub's mutex guards the following fields.
	watches map[string][]*watch[D]
	used    time.Time // the time at which a watch was last added or removed
}

type watch[D any] struct {
	of   string
	ch   chan struct{}
	data D
	stop func() bool // keeps the end of ctx from calling leave; nil at first
}

// Watch returns a channel that receives a value after each wake-up for the name in the
// parameter of, until ctx is done. The channel is closed when the connection ends.
// Watch waits until the connection is live. It returns ErrClosed after Close, the cause
// of ctx, or the reason for which the connection was closed. If the connection is not
// live within limit, Watch ends the connection and returns the error late.
func (h *Hub[D]) Watch(ctx context.Context, of string, limit time.Duration, late error) (<-chan struct{}, error) {
	w := &watch[D]{of: of, ch: make(chan struct{}, 1)}
	l, err := h.join(w)
	if err != nil {
		return nil, err
	}
	confirmed := time.NewTimer(limit)
	defer confirmed.Stop()
	select {
	case <-l.live:
	case <-l.ended:
		err = l.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-confirmed.C:
		err = late
		l.End(late)
	}
	if err != nil {
		h.leave(w)
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	w.stop = context.AfterFunc(ctx, func() { h.leave(w) })
	return w.ch, nil
}

// join adds w to the connection. If there is no connection, join opens one.
func (h *Hub[D]) join(w *watch[D]) (*Listener[D], error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	if h.on == nil {
		h.on = h.open()
	}
	h.on.watches[w.of] = append(h.on.watches[w.of], w)
	h.on.used = time.Now()
	return h.on, nil
}

// open opens a connection. The caller holds the mutex.
func (h *Hub[D]) open() *Listener[D] {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Listener[D]{
		hub: h, live: make(chan struct{}), ended: make(chan struct{}),
		cancel: cancel, watches: make(map[string][]*watch[D]),
	}
	h.wg.Go(func() {
		defer func() {
			if r := recover(); r != nil { // in a hook of the client's configuration
				l.End(fmt.Errorf("panic in the client: %v", r))
			}
		}()
		l.End(h.listen(ctx, l))
	})
	return l
}

func (h *Hub[D]) leave(w *watch[D]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.on == nil {
		return
	}
	all := h.on.watches[w.of]
	for i, other := range all {
		if other != w {
			continue
		}
		if len(all) == 1 {
			delete(h.on.watches, w.of)
		} else {
			h.on.watches[w.of] = append(all[:i:i], all[i+1:]...)
		}
		h.on.used = time.Now()
		return
	}
}

// Each calls f with the data of each watch for the name in the parameter of, and
// reports whether there is such a watch.
func (h *Hub[D]) Each(of string, f func(*D)) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.on == nil {
		return false
	}
	all := h.on.watches[of]
	for _, w := range all {
		f(&w.data)
	}
	return len(all) > 0
}

// Live makes the waiting Watch calls of the connection return.
func (l *Listener[D]) Live() { close(l.live) }

// Wake calls f with the data of each watch for the name in the parameter of, and wakes
// the watch. f may be nil.
func (l *Listener[D]) Wake(of string, f func(*D)) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	for _, w := range l.watches[of] {
		if f != nil {
			f(&w.data)
		}
		select {
		case w.ch <- struct{}{}:
		default: // the caller has not received the last wake-up yet
		}
	}
}

// Unused reports whether the connection has had no watches for over a minute.
func (l *Listener[D]) Unused() bool {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	return len(l.watches) == 0 && time.Since(l.used) > keep
}

// End ends the connection and closes the channels of its watches. Later calls do
// nothing.
func (l *Listener[D]) End(why error) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	if l.hub.on != l {
		return
	}
	l.hub.on = nil
	l.err = why
	for _, all := range l.watches {
		for _, w := range all {
			close(w.ch)
			if w.stop != nil {
				w.stop()
			}
		}
	}
	l.watches = nil
	close(l.ended)
	l.cancel()
}

// End ends the hub's connection, if there is one.
func (h *Hub[D]) End(why error) {
	h.mu.Lock()
	l := h.on
	h.mu.Unlock()
	if l != nil {
		l.End(why)
	}
}

// Go runs f in the background, unless the hub is closed, and reports whether it does.
// Close waits for f.
func (h *Hub[D]) Go(f func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.wg.Go(f)
	}
	return !h.closed
}

// Close ends the connection and refuses further watches. It waits for the background
// work for at most limit, and reports whether all of it has returned.
func (h *Hub[D]) Close(limit time.Duration) bool {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.End(ErrClosed)
	gone := make(chan struct{})
	go func() {
		h.wg.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return true
	case <-time.After(limit):
		return false
	}
}
