package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// quarantined is why the votes of a node do not count: it was restarted.
type quarantined struct{ left time.Duration }

func (e *quarantined) Error() string {
	return fmt.Sprintf("restarted, and trusted again in %v, see WithQuarantine", seconds(e.left))
}

func (e *quarantined) Is(target error) bool { return target == core.ErrUnavailable }

// seconds is d in whole seconds, rounded up.
func seconds(d time.Duration) time.Duration {
	return (max(d, 0) + time.Second - 1).Truncate(time.Second)
}

// quarantineOf is why node i may not vote, nil if it may.
func (s *Store) quarantineOf(i int) error {
	s.lives.mu.Lock()
	defer s.lives.mu.Unlock()
	l := &s.lives.known[i]
	if l.at.IsZero() || l.vouched == l.info.ID {
		return nil
	}
	if left := s.youth(l); left > 0 {
		return &quarantined{left}
	}
	return nil
}

// report tells the observer of a node that stops or begins to count. err is the
// outcome of a call of the node that began at start.
func (s *Store) report(ctx context.Context, n *node, start time.Time, err error) {
	if s.observer == nil || errors.Is(err, errLeaving) {
		return
	}
	if kindOf(err) < failed {
		err = s.quarantineOf(n.index) // it has answered
	}
	if !n.turned(start, err == nil, s.askedLast(n.index)) {
		if err == nil && n.isOut() {
			s.lookAgain() // it may have been restarted, which only a new look tells
		}
		return
	}
	e := core.Event{Kind: core.NodeBack, Name: fmt.Sprintf("node-%d", n.index)}
	if err != nil {
		e.Kind, e.Err = core.NodeOut, err
	}
	s.observer.Observe(ctx, e)
}

// askedLast is when the last call began by which node i told its life; zero if
// it never has.
func (s *Store) askedLast(i int) time.Time {
	s.lives.mu.Lock()
	defer s.lives.mu.Unlock()
	return s.lives.known[i].asked
}

// standing is whether a node counts, as the observer was told.
type standing struct {
	mu  sync.Mutex
	out time.Time // since when it does not count; zero while it does
}

// turned notes the outcome of a call that began at start, and says whether the
// observer has to be told. A node that is out is back only by a call that began
// later, and only when it has told its life since, if it ever does: a restarted
// server answers too, but does not count yet. asked is when it was last asked.
func (t *standing) turned(start time.Time, counts bool, asked time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !counts && t.out.IsZero():
		t.out = time.Now()
		return true
	case counts && !t.out.IsZero() && start.After(t.out) && (asked.IsZero() || asked.After(t.out)):
		t.out = time.Time{}
		return true
	}
	return false
}

func (t *standing) isOut() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.out.IsZero()
}

// shortage is why there was no majority: how many nodes have answered, and what
// the others have.
type shortage struct {
	answered, nodes, quorum int
	quarantined             int
	reasons                 []error // by node; nil for those that have answered
}

func (e *shortage) Error() string {
	away := e.nodes - e.answered - e.quarantined
	text := fmt.Sprintf("%d of %d nodes answer and count, %d are needed; %d in quarantine, %d out of reach", e.answered, e.nodes, e.quorum, e.quarantined, away)
	var order []string
	nodes := make(map[string][]string)
	for i, err := range e.reasons {
		if err == nil {
			continue
		}
		reason := err.Error()
		if nodes[reason] == nil {
			order = append(order, reason)
		}
		nodes[reason] = append(nodes[reason], fmt.Sprint(i))
	}
	for _, reason := range order {
		text += fmt.Sprintf("; node %s: %s", strings.Join(nodes[reason], ", "), reason)
	}
	return text
}

func (e *shortage) Unwrap() []error {
	return slices.DeleteFunc(slices.Clone(e.reasons), func(err error) bool { return err == nil })
}

// shortage says what of the ballot made up no majority. It is called under its
// mutex.
func (b *ballot) shortage() *shortage {
	e := &shortage{nodes: len(b.votes), quorum: b.store.quorum, reasons: make([]error, len(b.votes))}
	for i, v := range b.votes {
		err := v.err
		switch {
		case b.asked[i]:
			err = errNodeTimeout
		case v.kind == silent:
			err = errNotAsked
		case v.kind < failed && v.kind != uncounted:
			err = nil
		}
		if errors.Is(err, errNotAsked) && !b.store.nodes[i].silent.Load() {
			err = nil // the others were too few, and the look for their sake was answered
		}
		switch q := (*quarantined)(nil); {
		case err == nil:
			e.answered++
		case errors.As(err, &q):
			e.quarantined++
		}
		e.reasons[i] = err
	}
	return e
}
