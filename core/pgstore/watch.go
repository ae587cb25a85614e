package pgstore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Watch implements core.Watcher. All watches of a Store share one connection, which is not
// part of the pool and listens on a channel of the Store's own. The first Watch opens it, and
// it is closed a minute after its last use. If it breaks, or the server does not answer for
// some seconds, the channels of all watches are closed. The next Watch opens another one.
//
// Watch blocks until the server has confirmed that the connection listens. It fails with:
//   - core.ErrUnsupported after WithoutWakeUps, or if a pooler does not pass notifications on
//   - core.ErrClosed after Close
//   - core.ErrUnavailable if the server has not confirmed before ctx ends, or within four
//     seconds
func (s *Store) Watch(ctx context.Context, c core.Claim) (<-chan struct{}, error) {
	if err := usable("watch", &c); err != nil {
		return nil, err
	}
	if s.quiet {
		return nil, fmt.Errorf("pgstore: watch without wake-ups: %w", core.ErrUnsupported)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("pgstore: watch: %w: %w", core.ErrUnavailable, context.Cause(ctx))
	}
	w := &watcher{of: payload(&c), ch: make(chan struct{}, 1)}
	l, err := s.hub.join(w)
	if err != nil {
		return nil, err
	}
	confirmed := time.NewTimer(2 * callLimit)
	defer confirmed.Stop()
	select {
	case <-l.live:
	case <-l.ended:
		err = l.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-confirmed.C:
		err = errNoAnswer
		s.hub.end(l, err)
	}
	if err != nil {
		s.hub.leave(w)
		if errors.Is(err, core.ErrUnsupported) {
			return nil, fmt.Errorf("pgstore: watch: %w", err)
		}
		return nil, fmt.Errorf("pgstore: watch: %w: %w", core.ErrUnavailable, err)
	}
	s.hub.mu.Lock()
	w.stop = context.AfterFunc(ctx, func() { s.hub.leave(w) })
	s.hub.mu.Unlock()
	return w.ch, nil
}

// payload is the notification for a waiting claim, as rouse in sql/state.sql writes it.
func payload(c *core.Claim) string {
	return hex.EncodeToString([]byte(c.Lease)) + " " + hex.EncodeToString([]byte(c.Key))
}

// watcher is one Watch.
type watcher struct {
	of   string
	ch   chan struct{}
	stop func() bool // takes back the leave at the end of ctx; nil at first
}

// hub has all watches of a Store.
type hub struct {
	store   *Store
	channel string

	mu     sync.Mutex
	on     *listener // nil while there is none
	deaf   time.Time // the end of the time for which notifications are known not to arrive
	closed bool
	wg     sync.WaitGroup
}

var errDeaf = fmt.Errorf("notifications do not arrive, the connection leads through a pooler: "+
	"use WithListener or WithoutWakeUps: %w", core.ErrUnsupported)

// name is the channel to notify for a waiting claim. It is empty if the Store does not listen.
func (h *hub) name() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.store.quiet || time.Now().Before(h.deaf) {
		return ""
	}
	return h.channel
}

// join registers w with the listener, which it starts if there is none.
func (h *hub) join(w *watcher) (*listener, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, fmt.Errorf("pgstore: watch: the store is closed: %w", core.ErrClosed)
	}
	if time.Now().Before(h.deaf) {
		return nil, fmt.Errorf("pgstore: watch: %w", errDeaf)
	}
	if h.on == nil {
		h.on = h.open()
	}
	h.on.watchers[w.of] = append(h.on.watchers[w.of], w)
	h.on.used = time.Now()
	return h.on, nil
}

// leave removes w from the listener.
func (h *hub) leave(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.on == nil {
		return
	}
	all := h.on.watchers[w.of]
	for i, other := range all {
		if other != w {
			continue
		}
		if len(all) == 1 {
			delete(h.on.watchers, w.of)
		} else {
			h.on.watchers[w.of] = append(all[:i:i], all[i+1:]...)
		}
		h.on.used = time.Now()
		return
	}
}

// wake passes a notification on to the watches of its claim.
func (h *hub) wake(l *listener, of string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range l.watchers[of] {
		select {
		case w.ch <- struct{}{}:
		default: // the caller has not taken the last wake-up yet
		}
	}
}

// end ends the listener and closes the channels of its watches. The next join starts another
// listener. A second call does nothing.
func (h *hub) end(l *listener, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.on != l {
		return
	}
	h.on = nil
	if errors.Is(why, core.ErrUnsupported) {
		h.deaf = time.Now().Add(deafFor)
	}
	l.err = why
	for _, all := range l.watchers {
		for _, w := range all {
			close(w.ch)
			if w.stop != nil {
				w.stop()
			}
		}
	}
	l.watchers = nil
	close(l.ended)
	l.cancel()
}

// relocate ends the listener, if there is one, so that the next watch connects anew.
func (h *hub) relocate(why error) {
	h.mu.Lock()
	l := h.on
	h.mu.Unlock()
	if l != nil {
		h.end(l, why)
	}
}

// background runs f, and reports whether it does: not after close, which waits for f.
func (h *hub) background(f func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.wg.Go(f)
	}
	return !h.closed
}

// close ends the listener, and waits for it for at most two seconds.
func (h *hub) close() error {
	h.mu.Lock()
	h.closed = true
	l := h.on
	h.mu.Unlock()
	if l != nil {
		h.end(l, core.ErrClosed)
	}
	gone := make(chan struct{})
	go func() {
		h.wg.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-time.After(callLimit):
		return errors.New("pgstore: close: the connection that listens hangs, and will end by its own time-out")
	}
}
