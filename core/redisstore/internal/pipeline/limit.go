package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/internal/words"
)

// Limit is the maximum time of one try of a call, see Pipeline.Do.
const Limit = 2 * time.Second

// ErrNoAnswer is the error of a call that took longer than Limit.
var ErrNoAnswer = fmt.Errorf("no answer within %s", words.Duration(Limit))

// Bounded returns ctx with a time-out of Limit, unless its deadline is earlier.
func Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= Limit {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, Limit, ErrNoAnswer)
}
