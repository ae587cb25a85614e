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

// Bounded gives ctx a deadline of Limit, unless it has an earlier one.
func Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= Limit {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, Limit, ErrNoAnswer)
}

// Detached runs work so that its caller can leave it, unless ctx is done. It returns the
// outcome of work, or the cause of ctx if that is done first. The client itself may not
// return then: by default go-redis does not apply a context's deadline to a socket, and
// never its cancellation.
func Detached[T any](ctx context.Context, work func() (T, error)) (value T, err error) {
	if ctx.Err() != nil {
		return value, context.Cause(ctx)
	}
	value, _, err = calls.Detached(ctx, work)
	return value, err
}
