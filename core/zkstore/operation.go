package zkstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core"
)

// operation is one Acquire or Release. The client's calls know no context, so it
// runs where its caller can leave it, and goes on to its end then.
type operation struct {
	ctx    context.Context // of the caller
	entry  *entry
	made   bool      // it has created a node
	proved time.Time // when the write began that proves the hold; zero: after the operation
	stage  atomic.Int32
}

// The stages.
const (
	waiting int32 = iota // nothing was sent
	atWork
	answered
	left // by its caller
)

type answer[R any] struct {
	result R
	err    error
}

// run runs f when the operations on the same lease that came before are done.
// The nodes of an operation whose caller has left are taken back.
func run[R any](ctx context.Context, s *Store, name string, c core.Claim, f func(o *operation) (R, error)) (R, error) {
	var none R
	unsent := func() (R, error) {
		return none, fmt.Errorf("zkstore: %s: %w: %w", name, core.ErrUnavailable, context.Cause(ctx))
	}
	if ctx.Err() != nil {
		return unsent()
	}
	e := s.entryOf(c)
	o := &operation{ctx: ctx, entry: e}
	begun := s.sess.gate.Begin()
	reply := make(chan answer[R], 1)
	started := s.background(func() {
		defer s.put(e)
		select {
		case e.turn <- struct{}{}:
		case <-ctx.Done():
			return
		case <-s.ctx.Done():
			reply <- answer[R]{err: fmt.Errorf("zkstore: %s: %w", name, errClosed)}
			return
		}
		defer func() { <-e.turn }()
		if !o.stage.CompareAndSwap(waiting, atWork) {
			return
		}
		r, err := f(o)
		reply <- answer[R]{r, err}
		if !o.stage.CompareAndSwap(atWork, answered) && o.made {
			if h := s.live(e); h != nil {
				s.forget(h)
				s.remove(h.path, h.session)
			}
		}
	})
	if !started {
		s.put(e)
		return none, fmt.Errorf("zkstore: %s: %w", name, errClosed)
	}
	select {
	case a := <-reply:
		return a.result, a.err
	case <-ctx.Done():
		_ = s.sess.gate.Doubt(context.Background(), begun)
	}
	switch {
	case o.stage.CompareAndSwap(waiting, left):
		return unsent()
	case o.stage.CompareAndSwap(atWork, left):
		return none, fmt.Errorf("zkstore: %s: no answer: %w", name, context.Cause(ctx))
	}
	a := <-reply
	return a.result, a.err
}
