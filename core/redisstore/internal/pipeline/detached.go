package pipeline

import (
	"context"

	"github.com/lockkit/lockkit/core/internal/calls"
)

// Detached runs work, unless ctx is already done, and returns its outcome. If ctx is
// done before work returns, Detached returns the Cause of ctx. The client can continue
// after that. By default go-redis does not apply a context's deadline to a socket, and
// go-redis never applies a cancellation. Unlike calls.Detached, Detached does not begin
// work under a ctx that is done, and does not report whether the caller has left.
func Detached[T any](ctx context.Context, work func() (T, error)) (value T, err error) {
	if ctx.Err() != nil {
		return value, Cause(ctx)
	}
	value, left, err := calls.Detached(ctx, work)
	if left {
		err = Cause(ctx)
	}
	return value, err
}
