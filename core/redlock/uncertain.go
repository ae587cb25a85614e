package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core/internal/outage"
	"github.com/lockkit/lockkit/core/store"
)

// uncertain is the error of an operation with an unknown outcome. It matches the cause
// of a context that is done, but not the answer of a single node.
type uncertain struct {
	op    string
	cause error
}

func (e *uncertain) Error() string {
	return fmt.Sprintf("redlock: %s: outcome unknown: %v", e.op, e.cause)
}

// causeOf returns the reason for an unknown outcome. This is the cause of the caller's
// ctx, the error of a node, or a time-out.
func causeOf(ctx context.Context, node error) error {
	cause := context.Cause(ctx)
	if node != nil && (cause == nil || cause == errTimeout) {
		return node
	}
	return cmp.Or(cause, errTimeout)
}

// Down reports whether an immediate retry is useless.
func (e *uncertain) Down() bool { return outage.Known(e.cause) }

// Is reports whether the cause matches target. It never matches the class of a single
// node's answer, because this answer is not the majority's.
func (e *uncertain) Is(target error) bool {
	for _, answer := range []error{store.ErrBusy, store.ErrLost, store.ErrInvalid, store.ErrUnsupported, store.ErrUnavailable, store.ErrClosed} {
		if target == answer {
			return false
		}
	}
	return errors.Is(e.cause, target)
}
