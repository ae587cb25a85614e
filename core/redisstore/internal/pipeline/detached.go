package pipeline

import (
	"context"
	"fmt"
	"time"
)

// Limit bounds a call.
const Limit = 2 * time.Second

// ErrNoAnswer is the error of a call that took longer than Limit.
var ErrNoAnswer = fmt.Errorf("no answer within %v", Limit)

// Bounded gives ctx a deadline of Limit if it has none that is sooner.
func Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= Limit {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, Limit, ErrNoAnswer)
}

// Detached runs work on a goroutine of its own, and returns its outcome, or the cause
// of ctx's end if that comes first. The client itself may not return then: by default
// go-redis does not apply a context's deadline to a socket, and never its
// cancellation. A later outcome of work is dropped. A panic in work is an error.
func Detached[T any](ctx context.Context, work func() (T, error)) (T, error) {
	return detached(ctx, new(state), work)
}

// detached is Detached for a call whose caller leaves when ctx ends.
func detached[T any](ctx context.Context, s *state, work func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	var none T
	if ctx.Err() != nil {
		s.leave()
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
	s.leave()
	select {
	case o := <-done:
		return o.value, o.err
	default:
		return none, context.Cause(ctx)
	}
}
