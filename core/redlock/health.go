package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// health is the state of a node as it was last reported to the observer.
type health struct {
	mu    sync.Mutex
	out   time.Time // the end of the last call that did not count; zero while the node counts
	heard time.Time // the end of a later call that was answered; zero before
}

// changed records the outcome of a call that began at start, and reports whether the
// observer has to be notified. asked is the start of the last call in which the node
// described its server. A node counts again after two calls: one that began after out
// was answered, and a later one described the server. Without the second call, the
// server can have been restarted. Without the first one, it can still be down, because a
// description need not come from the server. If described is false, the node describes
// no server, and the first call is enough. start is zero for a description that need not
// come from the server.
func (h *health) changed(start time.Time, counts bool, asked time.Time, described bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch was := h.out; {
	case !counts:
		h.out, h.heard = time.Now(), time.Time{}
		return was.IsZero()
	case was.IsZero():
		return false
	case h.heard.IsZero() && start.After(was):
		h.heard = time.Now()
	}
	if h.heard.IsZero() || described && asked.Before(h.heard) {
		return false
	}
	h.out, h.heard = time.Time{}, time.Time{}
	return true
}

func (h *health) isOut() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.out.IsZero()
}

// report notifies the observer when a node stops counting or counts again. err is the
// outcome of a call to the node that began at start. start is zero for a description of
// the server that need not come from the server.
func (s *Store) report(ctx context.Context, n *node, start time.Time, err error) {
	if s.observer == nil || errors.Is(err, errReleasePending) {
		return
	}
	asked, described, barred := s.membership.lastAsked(n.index)
	if kindOf(err) < failed {
		err = barred // the node has answered
	}
	if !n.changed(start, err == nil, asked, described) {
		if err == nil && n.isOut() {
			// The node may have been restarted, which only a new check shows.
			s.membership.lookAgain(s.ctx)
		}
		return
	}
	e := core.Event{Kind: core.NodeBack, Name: fmt.Sprintf("node-%d", n.index)}
	if err != nil {
		e.Kind, e.Err = core.NodeOut, err
	}
	core.Observers(s.observer).Observe(ctx, e) // core.Observers recovers panics
}
