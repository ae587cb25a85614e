package redlock

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockkit/lockkit/core/internal/outage"
	"github.com/lockkit/lockkit/core/store"
)

// shortage is the error of a vote without a majority. It contains the number of nodes
// that have answered, and the reason for each other node.
type shortage struct {
	answered, nodes, quorum int
	quarantined             int
	reasons                 []error // by node; nil for a node that has answered
}

func newShortage(nodes []*node, quorum int, vs votes) *shortage {
	e := &shortage{nodes: len(vs), quorum: quorum, reasons: make([]error, len(vs))}
	for i, v := range vs {
		err := v.err
		switch {
		case v.pending:
			err = errNodeTimeout
		case v.kind == silent:
			err = errNotAsked
		case v.kind < failed && v.kind != uncounted:
			err = nil
		}
		if errors.Is(err, errNotAsked) && !nodes[i].isSilent() {
			// The node answered its last call, and was not asked because too few others
			// can vote.
			err = nil
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

func (e *shortage) Error() string {
	away := e.nodes - e.answered - e.quarantined
	text := fmt.Sprintf("%d of %d nodes answer and count, %d are needed; %d in quarantine, %d out of reach", e.answered, e.nodes, e.quorum, e.quarantined, away)
	var order []string
	nodes := make(map[string][]string)
	for i, err := range e.reasons {
		if err == nil {
			continue
		}
		reason := strings.ReplaceAll(err.Error(), store.ErrUnavailable.Error()+": ", "")
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

// Down reports whether the nodes that are not known to be down are too few for a
// majority. An immediate retry is then useless.
func (e *shortage) Down() bool {
	left := e.nodes
	for _, err := range e.reasons {
		if outage.Known(err) {
			left--
		}
	}
	return left < e.quorum
}
