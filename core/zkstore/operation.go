package zkstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// operation is an Acquire, Extend or Release of one lease.
type operation struct {
	ctx    context.Context // the caller's
	entry  *entry
	made   bool      // it has created a node
	proved time.Time // the start of an earlier write that proves the hold; zero: none
}

// run runs f after the earlier operations on the same lease have returned. If the
// caller of an operation leaves, run deletes the node that the operation created.
func run[R any](ctx context.Context, s *Store, name string, c store.Claim, f func(o *operation) (R, error)) (R, error) {
	return detached(ctx, s, name, func(at *stage) (r R, err error) {
		e := s.entryOf(c)
		defer s.put(e)
		select {
		case e.turn <- struct{}{}:
		case <-ctx.Done():
			return r, unsent(name, context.Cause(ctx))
		case <-s.ctx.Done():
			return r, fmt.Errorf("zkstore: %s: %w", name, errClosed)
		}
		defer func() { <-e.turn }()
		if !at.begin() {
			return r, unsent(name, context.Cause(ctx))
		}
		o := &operation{ctx: ctx, entry: e}
		r, err = f(o)
		if !at.end() && o.made {
			if h := s.live(e); h != nil {
				s.forget(h)
				s.remove(h.path, h.session)
			}
		}
		return r, err
	})
}

// stage is the progress of a call. The result for a caller that leaves depends on it.
type stage struct{ of atomic.Int32 }

const (
	waiting int32 = iota // nothing was sent
	atWork
	answered
	left // the caller has left
)

// begin announces that a request will be sent. If the caller has left, begin returns
// false, and nothing may be sent.
func (a *stage) begin() bool { return a.of.CompareAndSwap(waiting, atWork) }

// over records that the request has changed nothing.
func (a *stage) over() { a.of.CompareAndSwap(atWork, waiting) }

// end makes the caller wait for the result, which is about to be returned. It returns
// false if the caller has left.
func (a *stage) end() bool { return a.of.CompareAndSwap(atWork, answered) }

// detached runs f in the background and waits for its result until ctx is done. The
// client's calls take no context, so f continues after its caller has left.
func detached[R any](ctx context.Context, s *Store, op string, f func(at *stage) (R, error)) (r R, err error) {
	if ctx.Err() != nil {
		return r, unsent(op, context.Cause(ctx))
	}
	type answer struct {
		result R
		err    error
	}
	begun := s.sess.gate.Begin()
	var at stage
	reply := make(chan answer, 1)
	if !s.background(func() {
		r, err := f(&at)
		reply <- answer{r, err}
	}) {
		return r, fmt.Errorf("zkstore: %s: %w", op, errClosed)
	}
	select {
	case a := <-reply:
		return a.result, a.err
	case <-ctx.Done():
		_ = s.sess.gate.Doubt(context.Background(), begun)
	}
	switch {
	case at.of.CompareAndSwap(waiting, left):
		return r, unsent(op, context.Cause(ctx))
	case at.of.CompareAndSwap(atWork, left):
		return r, fmt.Errorf("zkstore: %s: no answer: %w", op, context.Cause(ctx))
	}
	a := <-reply
	return a.result, a.err
}

// unsent returns the error of a call that has changed nothing.
func unsent(op string, err error) error {
	return fmt.Errorf("zkstore: %s: %w: %w", op, store.ErrUnavailable, err)
}
