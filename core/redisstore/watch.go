package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/brief"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
)

// Watch implements core.Watcher. All watches of a Store share one subscription
// to a channel of its own, which is opened when it is first needed. It breaks if
// the connection ends, or if the server has not answered a ping for some
// seconds; then the channels of all watches are closed.
//
// It fails with core.ErrUnsupported with plain keys, with core.ErrClosed after
// Close, and with core.ErrUnavailable if the server does not confirm the
// subscription before ctx ends, or within two seconds.
func (s *Store) Watch(ctx context.Context, c core.Claim) (<-chan struct{}, error) {
	if err := s.usable("watch", &c); err != nil {
		return nil, err
	}
	if s.plain {
		return nil, fmt.Errorf("redisstore: watch with plain keys: %w", core.ErrUnsupported)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("redisstore: watch: %w: %w", core.ErrUnavailable, context.Cause(ctx))
	}
	if err := s.pipeline.Enter(ctx); err != nil {
		return nil, fmt.Errorf("redisstore: watch: %w: %w", core.ErrUnavailable, brief.Error(err))
	}
	w := &watcher{of: s.key(c.Key) + " " + c.Lease, ch: make(chan struct{}, 1)}
	sub, err := s.hub.join(w)
	if err != nil {
		return nil, err
	}
	confirmed := time.NewTimer(pipeline.Limit)
	defer confirmed.Stop()
	select {
	case <-sub.live:
	case <-sub.ended:
		err = sub.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-confirmed.C:
		err = pipeline.ErrNoAnswer
		// It may hang in a dial that ends much later.
		s.hub.end(sub, pipeline.ErrNoAnswer)
	}
	if err != nil {
		s.hub.leave(w)
		if s.cluster != nil {
			// By itself the client would look for its nodes again in a minute.
			s.cluster.ReloadState(ctx)
		}
		return nil, fmt.Errorf("redisstore: watch: %w: %w", core.ErrUnavailable, brief.Error(err))
	}
	s.hub.mu.Lock()
	w.stop = context.AfterFunc(ctx, func() { s.hub.leave(w) })
	s.hub.mu.Unlock()
	return w.ch, nil
}

// watcher is one Watch.
type watcher struct {
	of string // the redis key and the lease that it is for
	ch chan struct{}

	// Under the hub's mutex.
	place  place
	pushed *pushed // nil if none has come

	stop func() bool // takes back what waits for the end of ctx; nil at first
}

// join registers w with the subscription, which it opens if there is none.
func (h *hub) join(w *watcher) (*subscription, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, fmt.Errorf("redisstore: watch: the store is closed: %w", core.ErrClosed)
	}
	if h.sub == nil {
		h.sub = h.open()
	}
	h.sub.watchers[w.of] = append(h.sub.watchers[w.of], w)
	h.sub.used = time.Now()
	return h.sub, nil
}

// leave takes w out.
func (h *hub) leave(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sub == nil {
		return
	}
	all := h.sub.watchers[w.of]
	for i, other := range all {
		if other != w {
			continue
		}
		if len(all) == 1 {
			delete(h.sub.watchers, w.of)
		} else {
			h.sub.watchers[w.of] = append(all[:i:i], all[i+1:]...)
		}
		h.sub.used = time.Now()
		return
	}
}

// wake passes a message on.
func (h *hub) wake(sub *subscription, text string) {
	of, grant, granted := strings.Cut(text, "\n")
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range sub.watchers[of] {
		if granted {
			w.pushed = readPush(grant)
		}
		select {
		case w.ch <- struct{}{}:
		default: // it has not taken the last one yet
		}
	}
}

// end breaks the subscription: its watches are told, and a new one can be
// opened. It does nothing a second time.
func (h *hub) end(sub *subscription, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sub != sub {
		return
	}
	h.sub = nil
	sub.err = why
	for _, all := range sub.watchers {
		for _, w := range all {
			close(w.ch)
			if w.stop != nil {
				w.stop()
			}
		}
	}
	sub.watchers = nil
	close(sub.ended)
	sub.cancel()
}

// close ends the background work and waits for it, but not for ever.
func (h *hub) close() error {
	h.mu.Lock()
	h.closed = true
	sub := h.sub
	h.mu.Unlock()
	if sub == nil {
		return nil
	}
	h.end(sub, core.ErrClosed)
	select {
	case <-sub.gone:
		return nil
	case <-time.After(pipeline.Limit):
		return errors.New("redisstore: close: the subscription's connection hangs and will end by its own time-out")
	}
}
