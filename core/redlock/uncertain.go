package redlock

import (
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/outage"
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

// Down tells that it is no use to ask again at once.
func (e *uncertain) Down() bool { return outage.Known(e.cause) }

// Is does not match the answer of a single node, since it is not the answer of the
// majority.
func (e *uncertain) Is(target error) bool {
	for _, answer := range []error{core.ErrBusy, core.ErrLost, core.ErrInvalid, core.ErrUnsupported, core.ErrUnavailable, core.ErrClosed} {
		if target == answer {
			return false
		}
	}
	return errors.Is(e.cause, target)
}
