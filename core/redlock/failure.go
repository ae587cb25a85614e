package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core"
)

// failure is the error of a ballot that was not won.
func (b *ballot) failure(ctx context.Context, v verdict) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var count [unknown + 1]int
	var first [unknown + 1]error
	pending := 0
	var pauses []time.Duration
	waiting := 0
	for i, v := range b.votes {
		if b.asked[i] {
			pending++
			continue
		}
		count[v.kind]++
		if first[v.kind] == nil {
			first[v.kind] = v.err
		}
		if e, ok := errors.AsType[*core.BusyError](v.err); ok {
			pauses = append(pauses, e.RetryAfter)
			waiting = max(waiting, e.Waiting)
		}
	}
	n, q := len(b.votes), b.store.quorum
	switch {
	case count[unsupported] > 0:
		return fmt.Errorf("redlock: acquire: %w", first[unsupported])
	case v == refused && count[lost] > n-q, v == refused && count[busy] == 0 && count[lost] > 0:
		return fmt.Errorf("redlock: acquire: released before: %w", core.ErrLost)
	case v == refused && count[invalid] > 0 && count[invalid]+count[granted] >= q:
		return fmt.Errorf("redlock: acquire: %w", first[invalid])
	case v == refused:
		e := &core.BusyError{Key: b.claim.Key, Waiting: waiting}
		if len(pauses) > 0 {
			e.RetryAfter = slices.Min(pauses)
		}
		return e
	}
	reason := error(b.shortage())
	if v == left {
		reason = context.Cause(ctx)
	}
	if count[granted]+count[uncounted]+count[unknown]+pending == 0 {
		return fmt.Errorf("redlock: acquire: %w: %w", core.ErrUnavailable, reason)
	}
	return &uncertain{op: "acquire", cause: reason}
}

// uncertain is an error whose outcome is unknown, whatever single nodes have said:
// it matches the end of a context, and no answer.
type uncertain struct {
	op    string
	cause error
}

func (e *uncertain) Error() string {
	return fmt.Sprintf("redlock: %s: outcome unknown: %v", e.op, e.cause)
}

// Is hides what a single node answered: it is not the answer of the majority.
func (e *uncertain) Is(target error) bool {
	for _, answer := range []error{core.ErrBusy, core.ErrLost, core.ErrInvalid, core.ErrUnsupported, core.ErrUnavailable, core.ErrClosed} {
		if target == answer {
			return false
		}
	}
	return errors.Is(e.cause, target)
}
