package pipeline

import (
	"context"
	"fmt"
	"time"
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
