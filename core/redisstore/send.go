package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core"
)

// callLimit bounds a call whose context has no deadline.
const callLimit = 2 * time.Second

var errNoAnswer = fmt.Errorf("no answer within %v", callLimit)

// A flight is what one call has on its way to the server.
type flight struct{ state atomic.Int32 }

const (
	waiting  int32 = iota // nothing is on its way
	sent                  // something may have reached the server
	left                  // the caller went, nothing has been or will be written
	leftSent              // the caller went after something was sent, no more will be
)

var errLeft = errors.New("the caller has gone")

// leave says that the caller goes.
func (f *flight) leave() {
	for !f.state.CompareAndSwap(waiting, left) && !f.state.CompareAndSwap(sent, leftSent) {
		if s := f.state.Load(); s == left || s == leftSent {
			return
		}
	}
}

// again says that what was sent has been refused by the server, so that
// nothing is on its way. It is false if the caller has gone.
func (f *flight) again() bool { return f.state.CompareAndSwap(sent, waiting) }

// unsent tells that nothing has reached the server.
func (f *flight) unsent() bool {
	s := f.state.Load()
	return s == waiting || s == left
}

// bounded gives ctx a deadline if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, callLimit, errNoAnswer)
}

// leave runs work where the caller can leave it when ctx ends. The client
// itself may not: by default go-redis does not apply a context's deadline to a
// socket, and never its cancellation. What work returns after that is dropped.
func leave[T any](ctx context.Context, f *flight, work func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	var none T
	if ctx.Err() != nil {
		f.leave()
		return none, context.Cause(ctx)
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if r := recover(); r != nil {
				o.err = fmt.Errorf("panic in the client: %v", r)
			}
			done <- o
		}()
		o.value, o.err = work()
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
	}
	f.leave()
	select {
	case o := <-done:
		return o.value, o.err
	default:
		return none, context.Cause(ctx)
	}
}

// call sends c and returns its answer.
func (s *Store) call(ctx context.Context, op string, c *command) ([]any, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	v, err := leave(ctx, c.flight, func() (any, error) {
		last := c
		if err := s.client.Process(ctx, c); isReply(err, "NOSCRIPT") && c.flight.again() {
			last = c.whole(ctx)
			_ = s.client.Process(ctx, last)
		}
		return c.reply(last)
	})
	if err != nil {
		return nil, s.failure(ctx, op, c.flight, err)
	}
	return parse(op, v)
}

// failure gives err its class, and has a cluster client look again where the
// slots are: it would do so by itself only when it sends a command once more.
func (s *Store) failure(ctx context.Context, op string, f *flight, err error) error {
	if s.cluster != nil {
		s.cluster.ReloadState(ctx)
	}
	return failure(ctx, op, f, err)
}

// failure gives err its class: it matches core.ErrUnavailable if the call
// certainly changed nothing.
func failure(ctx context.Context, op string, f *flight, err error) error {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		// The socket has the same deadline and can be a moment ahead.
		<-ctx.Done()
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	if f.unsent() || notSent(err) || refused(err) {
		return fmt.Errorf("redisstore: %s: %w: %w", op, core.ErrUnavailable, err)
	}
	return fmt.Errorf("redisstore: %s: outcome unknown: %w", op, err)
}
