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
	ctx    context.Context // of the caller
	entry  *entry
	made   bool      // it has created a node
	proved time.Time // when the write began that proves the hold; zero: after the operation
}

// run runs f when the operations on the same lease that came before are done. If the
// caller of an operation has left, its nodes are deleted.
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

// stage is the progress of a call.
type stage struct{ of atomic.Int32 }

// The stages.
const (
	waiting int32 = iota // nothing was sent
	atWork
	answered
	left // by its caller
)

// begin announces that a request will be sent. It returns false if the caller has left:
// then nothing may be sent.
func (a *stage) begin() bool { return a.of.CompareAndSwap(waiting, atWork) }

// over records that nothing has changed.
func (a *stage) over() { a.of.CompareAndSwap(atWork, waiting) }

// end makes the caller wait for the answer, which is at hand. It returns false if the
// caller has left.
func (a *stage) end() bool { return a.of.CompareAndSwap(atWork, answered) }

// detached runs f in the background, where its caller can leave it, because the
// client's calls take no context. f then goes on to its end.
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
