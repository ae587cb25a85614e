package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core/internal/outage"
	"github.com/lockkit/lockkit/core/store"
)

// uncertain is the error of an operation with an unknown outcome. It matches the cause of
// an ended context, and no answer of a single node.
type uncertain struct {
	op    string
	cause error
}

func (e *uncertain) Error() string {
	return fmt.Sprintf("redlock: %s: outcome unknown: %v", e.op, e.cause)
}

// causeOf returns the reason of an uncertain outcome: the end of the caller's ctx, the error
// of a node, or that time was up.
func causeOf(ctx context.Context, node error) error {
	cause := context.Cause(ctx)
	if node != nil && (cause == nil || cause == errTimeout) {
		return node
	}
	return cmp.Or(cause, errTimeout)
}

// Down tells that it is no use to ask again at once.
func (e *uncertain) Down() bool { return outage.Known(e.cause) }

// Is does not match the answer of a single node, since it is not the answer of the
// majority.
func (e *uncertain) Is(target error) bool {
	for _, answer := range []error{store.ErrBusy, store.ErrLost, store.ErrInvalid, store.ErrUnsupported, store.ErrUnavailable, store.ErrClosed} {
		if target == answer {
			return false
		}
	}
	return errors.Is(e.cause, target)
}
