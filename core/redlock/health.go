package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// report tells the observer of a node that stops or begins to count. err is what
// came of the last call of it.
func (s *Store) report(ctx context.Context, n *node, err error) {
	if s.observer == nil || errors.Is(err, errLeaving) {
		return
	}
	if kindOf(err) < failed {
		err = s.quarantineOf(n.index) // it has answered
	}
	if n.out.Swap(err != nil) == (err != nil) {
		return
	}
	e := core.Event{Kind: core.NodeBack, Name: fmt.Sprintf("node-%d", n.index)}
	if err != nil {
		e.Kind, e.Err = core.NodeOut, err
	}
	s.observer.Observe(ctx, e)
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
