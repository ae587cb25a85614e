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
	mu  sync.Mutex
	out time.Time // the time at which the node stopped counting; zero while it counts
}

// changed records the outcome of a call that began at start, and reports whether the
// observer has to be notified. asked is the start of the last call in which the node
// reported its age, or zero. Only a call that began after the node stopped counting
// makes the node count again. If the node reports its age, asked must also be later
// than that time. A restarted server answers but does not count yet.
func (h *health) changed(start time.Time, counts bool, asked time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !counts && h.out.IsZero():
		h.out = time.Now()
		return true
	case counts && !h.out.IsZero() && start.After(h.out) && (asked.IsZero() || asked.After(h.out)):
		h.out = time.Time{}
		return true
	}
	return false
}

func (h *health) isOut() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.out.IsZero()
}

// report notifies the observer when a node stops counting or counts again. err is the
// outcome of a call to the node that began at start.
func (s *Store) report(ctx context.Context, n *node, start time.Time, err error) {
	if s.observer == nil || errors.Is(err, errReleasePending) {
		return
	}
	if kindOf(err) < failed {
		err = s.membership.quarantine(n.index) // the node has answered
	}
	if !n.changed(start, err == nil, s.membership.lastAsked(n.index)) {
		if err == nil && n.isOut() {
			// The node may have been restarted, which only a new check shows.
			s.membership.lookAgain()
		}
		return
	}
	e := core.Event{Kind: core.NodeBack, Name: fmt.Sprintf("node-%d", n.index)}
	if err != nil {
		e.Kind, e.Err = core.NodeOut, err
	}
	core.Observers(s.observer).Observe(ctx, e) // core.Observers recovers panics
}
