package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// health is the last state of a node that the observer knows.
type health struct {
	mu  sync.Mutex
	out time.Time // since when the node does not count; zero while it counts
}

// changed records the outcome of a call that began at start, and reports whether the
// observer has to be notified. A node that is out is back by a call that began later.
// If the node can report its age, it must have done so after it went out: a restarted
// server answers too, but does not count yet. asked is when the age was last asked for.
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
// outcome of a call of the node that began at start.
func (s *Store) report(ctx context.Context, n *node, start time.Time, err error) {
	if s.observer == nil || errors.Is(err, errReleasePending) {
		return
	}
	if kindOf(err) < failed {
		err = s.membership.quarantine(n.index) // it has answered
	}
	if !n.changed(start, err == nil, s.membership.lastAsked(n.index)) {
		if err == nil && n.isOut() {
			s.membership.lookAgain() // it may have been restarted, which only a new check shows
		}
		return
	}
	e := core.Event{Kind: core.NodeBack, Name: fmt.Sprintf("node-%d", n.index)}
	if err != nil {
		e.Kind, e.Err = core.NodeOut, err
	}
	core.Observers(s.observer).Observe(ctx, e) // contains a panic
}
