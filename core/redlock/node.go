package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/internal/outage"
	"github.com/lockkit/lockkit/core/store"
)

// nodeWidth is the maximum number of concurrent calls to one node, including those
// whose callers have left.
const nodeWidth = 256

// node is one of the stores of a Store.
type node struct {
	store  store.Store
	server store.Node // the same store, if it can describe its server; otherwise nil
	index  int
	room   chan struct{} // has an element for each call in flight
	health
	silence
}

var (
	errNodeTimeout = errors.New("the node did not answer in time")
	errCrowded     = fmt.Errorf("%w: too many calls of the node are without an answer", store.ErrUnavailable)
)

// call runs fn in the background for at most Limit, and then calls settle with fn's
// error. fn gets the values of ctx, but is not canceled with ctx. So no answer to a
// sent request is lost. If too many calls to the node are unanswered, fn waits for room
// for at most a node time-out, or not at all if the node is silent. If there is still
// no room, fn does not run, and settle gets errCrowded.
func (s *Store) call(ctx context.Context, n *node, fn func(ctx context.Context) error, settle func(err error)) {
	entered := n.enter(0)
	if !entered && n.isSilent() {
		settle(errCrowded)
		return
	}
	ctx = context.WithoutCancel(ctx)
	s.run(func() {
		ctx, cancel := context.WithTimeoutCause(ctx, s.Limit(), errNodeTimeout)
		defer cancel()
		if !entered && !n.enter(s.timeout) {
			settle(errCrowded)
			return
		}
		defer func() { <-n.room }()
		err := fn(ctx)
		// The node's silence is recorded before settle runs.
		switch noAnswer := err != nil && kindOf(err) >= failed; {
		case errors.Is(err, errReleasePending): // nothing was sent
		case noAnswer && outage.Known(err):
			n.down()
		case noAnswer && ctx.Err() != nil:
		default:
			n.answered()
		}
		settle(err)
	})
}

// enter takes room for a call. It waits for at most patience, and returns false if there
// is no room by then.
func (n *node) enter(patience time.Duration) bool {
	select {
	case n.room <- struct{}{}:
		n.asked()
		return true
	default:
	}
	if patience == 0 {
		return false
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case n.room <- struct{}{}:
		n.asked()
		return true
	case <-timer.C:
		return false
	}
}

// silence records whether a node is silent, so that calls do not wait for it. A node is
// silent if the first unanswered call since its last answer began at least a node
// time-out ago, or if its server is known to be down.
type silence struct {
	patience time.Duration
	epoch    time.Time
	since    atomic.Int64 // start of the first unanswered call, counted from epoch, or 0
}

func newSilence(patience time.Duration) silence {
	return silence{patience: patience, epoch: time.Now()}
}

func (s *silence) asked() { s.since.CompareAndSwap(0, max(1, int64(time.Since(s.epoch)))) }

func (s *silence) answered() { s.since.Store(0) }

func (s *silence) down() { s.since.Store(-int64(s.patience)) }

func (s *silence) isSilent() bool {
	since := time.Duration(s.since.Load())
	return since != 0 && time.Since(s.epoch)-since >= s.patience
}

// counts returns nil if a grant that the node has just made counts as a vote.
func (s *Store) counts(ctx context.Context, n *node) error {
	if n.server == nil {
		return nil
	}
	start := time.Now()
	info, err := n.server.Node(ctx)
	if errors.Is(err, store.ErrUnsupported) {
		return s.membership.noteMute(n.index, err)
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
	lost                    // the claim was released before
	invalid                 // the claim is not allowed
	unsupported             // the node does not support the claim
	failed                  // certainly nothing was changed
	unknown                 // the outcome is unknown
)

func kindOf(err error) kind {
	switch {
	case err == nil:
		return granted
	case errors.Is(err, store.ErrBusy):
		return busy
	case errors.Is(err, store.ErrLost):
		return lost
	case errors.Is(err, store.ErrInvalid):
		return invalid
	case errors.Is(err, store.ErrUnsupported):
		return unsupported
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, errReleasePending):
		return failed
	}
	return unknown
}
