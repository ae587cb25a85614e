package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core"
)

// nodeWidth is how many calls one node may have on its way, those included that
// nobody waits for any more.
const nodeWidth = 256

// node is one of the stores.
type node struct {
	store  core.Store
	server core.Node // the same, if it can tell which server it is
	index  int
	room   chan struct{} // has an element for each call on its way
	standing
	silent atomic.Bool // the last call that came back had no answer in time: it is not worth waiting for
}

var (
	errNodeTimeout = errors.New("the node did not answer in time")
	errCrowded     = fmt.Errorf("%w: too many calls of the node are without an answer", core.ErrUnavailable)
)

// call runs fn in the background, within budget, and then settle with its error.
// It does not depend on the caller's ctx, of which fn gets the values only: what
// was sent is followed to its end. A node that is overdue with too much is not
// called.
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
		// Set before it settles, and only for what cannot be an answer.
		n.silent.Store(err != nil && ctx.Err() != nil && kindOf(err) >= failed)
		settle(err)
	})
}

// counts is nil if what the node has granted just now counts as a vote.
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
	return s.judge(n.index, start, info)
}

// kind is what an answer comes to.
type kind int

const (
	silent      kind = iota // no answer yet
	granted                 // a vote
	uncounted               // granted by a node whose vote does not count
	busy                    // somebody else holds
	lost                    // released before
	invalid                 // a bad claim
	unsupported             // not with this node
	failed                  // certainly nothing was changed
	unknown                 // may be anything
)

// kindOf reads an error of a node.
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
