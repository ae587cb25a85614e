package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/internal/calls"
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

// Detached runs work where its caller can leave it, unless ctx has ended, and returns its
// outcome, or the cause of ctx's end if that comes first. The client itself may not return
// then: by default go-redis does not apply a context's deadline to a socket, and never its
// cancellation.
func Detached[T any](ctx context.Context, work func() (T, error)) (value T, err error) {
	if ctx.Err() != nil {
		return value, context.Cause(ctx)
	}
	value, _, err = calls.Detached(ctx, work)
	return value, err
}
