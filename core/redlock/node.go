package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core"
)

// nodeWidth is how many calls one node may have on its way, those included that
// nobody waits for any more.
const nodeWidth = 256

// maxLimit is how long a call may take that is not waited for any more.
const maxLimit = 5 * time.Second

// node is one of the stores.
type node struct {
	store  core.Store
	server core.Node // the same, if it can tell which server it is
	index  int
	room   chan struct{} // has an element for each call on its way
	prompt bool          // its store ends a call by itself, within maxLimit

	// Of the last call that came back, if one has:
	answers atomic.Bool // it had an answer
	silent  atomic.Bool // it had none in time: the node is not worth waiting for
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
	if !n.enter() {
		settle(errCrowded)
		return
	}
	ctx = context.WithoutCancel(ctx)
	s.run(func() {
		defer n.exit()
		ctx, cancel := context.WithTimeoutCause(ctx, budget, errNodeTimeout)
		defer cancel()
		err := fn(ctx)
		// Set before it settles, and only for what cannot be an answer.
		n.heard(err == nil || ctx.Err() == nil || kindOf(err) < failed)
		settle(err)
	})
}

// callPrompt is call for what a core.Prompt ends by itself. If the node has answered
// the last time, and fn does not wait for anything else, its ctx does not end, so that its store needs no goroutine to
// leave a call; one that takes longer than budget is settled without it, as not
// answered, and what it returns then is dropped.
func callPrompt[T any](ctx context.Context, s *Store, n *node, budget time.Duration, waits bool, fn func(ctx context.Context) (T, error), settle func(v T, err error)) {
	var none T
	if waits || !n.prompt || !n.answers.Load() {
		v := none
		s.call(ctx, n, budget, func(ctx context.Context) (err error) {
			v, err = fn(ctx)
			return err
		}, func(err error) { settle(v, err) })
		return
	}
	if !n.enter() {
		settle(none, errCrowded)
		return
	}
	ctx = context.WithoutCancel(ctx)
	s.run(func() {
		defer n.exit()
		var mu sync.Mutex // is held while it settles, so that this ends after that
		settled := false
		once := func(v T, err error, answers bool) {
			mu.Lock()
			defer mu.Unlock()
			if !settled {
				settled = true
				n.heard(answers)
				settle(v, err)
			}
		}
		late := time.AfterFunc(budget, func() { once(none, errNodeTimeout, false) })
		v, err := fn(ctx)
		late.Stop()
		once(v, err, true)
	})
}

// enter is false if too many calls of n are on their way. Each ends with exit.
func (n *node) enter() bool {
	select {
	case n.room <- struct{}{}:
		return true
	default:
		return false
	}
}

func (n *node) exit() { <-n.room }

func (n *node) heard(answers bool) {
	n.answers.Store(answers)
	n.silent.Store(!answers)
}

// counts is nil if what the node has granted just now counts as a vote.
func (s *Store) counts(ctx context.Context, n *node) error {
	if n.server == nil {
		return nil
	}
	info, err := n.server.Node(ctx)
	if errors.Is(err, core.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.judge(n.index, info)
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
