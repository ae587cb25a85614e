package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/internal/calls"
)

// Limit is the maximum time of a call.
const Limit = 2 * time.Second

// ErrNoAnswer is the error of a call that took longer than Limit.
var ErrNoAnswer = fmt.Errorf("no answer within %v", Limit)

// Bounded returns ctx with a time-out of Limit, unless its deadline is earlier.
func Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= Limit {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, Limit, ErrNoAnswer)
}

// Detached runs work, unless ctx is already done, and returns its outcome. If ctx is
// done before work returns, Detached returns the cause of ctx. The client can continue
// after that. By default go-redis does not apply a context's deadline to a socket, and
// go-redis never applies a cancellation.
func Detached[T any](ctx context.Context, work func() (T, error)) (value T, err error) {
	if ctx.Err() != nil {
		return value, context.Cause(ctx)
	}
	value, _, err = calls.Detached(ctx, work)
	return value, err
}
