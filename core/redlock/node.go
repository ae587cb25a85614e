package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/outage"
)

// nodeWidth is the greatest number of calls of one node at a time, including those whose
// callers have left.
const nodeWidth = 256

// node is one of the stores.
type node struct {
	store  core.Store
	server core.Node // the same store, if it can describe its server
	index  int
	room   chan struct{} // has an element for each call on its way
	health
	silent atomic.Bool // the last call that returned was not answered: the node is not worth waiting for
}

var (
	errNodeTimeout = errors.New("the node did not answer in time")
	errCrowded     = fmt.Errorf("%w: too many calls of the node are without an answer", core.ErrUnavailable)
)

// call runs fn in the background, within budget, and then settle with its error. The call
// does not end with ctx, of which fn gets the values only: a request that was sent is
// followed to its end. If too many calls of the node are unanswered, fn is not run.
func (s *Store) call(ctx context.Context, n *node, budget time.Duration, fn func(ctx context.Context) error, settle func(err error)) {
	select {
	case n.room <- struct{}{}:
	default:
		settle(errCrowded)
		return
	}
	ctx = context.WithoutCancel(ctx)
	s.run(func() {
		defer func() { <-n.room }()
		ctx, cancel := context.WithTimeoutCause(ctx, budget, errNodeTimeout)
		defer cancel()
		err := fn(ctx)
		// Set before settle, and only for an error that cannot be the node's answer.
		n.silent.Store(err != nil && (ctx.Err() != nil || outage.Known(err)) && kindOf(err) >= failed)
		settle(err)
	})
}

// counts is nil if a grant that the node has just made counts as a vote.
func (s *Store) counts(ctx context.Context, n *node) error {
	if n.server == nil {
		return nil
	}
	start := time.Now()
	info, err := n.server.Node(ctx)
	if errors.Is(err, core.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.membership.judge(n.index, start, info)
}

// kind is the meaning of a node's answer.
type kind int

const (
	silent      kind = iota // no answer yet
	granted                 // a vote
	uncounted               // granted by a node whose vote does not count
	busy                    // another owner holds the key
	lost                    // released before
	invalid                 // a bad claim
	unsupported             // not with this node
	failed                  // certainly nothing was changed
	unknown                 // the outcome is unknown
)

// kindOf returns the kind of an answer with this error.
func kindOf(err error) kind {
	switch {
	case err == nil:
		return granted
	case errors.Is(err, core.ErrBusy):
		return busy
	case errors.Is(err, core.ErrLost):
		return lost
	case errors.Is(err, core.ErrInvalid):
		return invalid
	case errors.Is(err, core.ErrUnsupported):
		return unsupported
	case errors.Is(err, core.ErrUnavailable):
		return failed
	}
	return unknown
}
