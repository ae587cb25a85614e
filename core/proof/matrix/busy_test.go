package matrix_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

// tooBusy counts the operations that failed because the machine was too busy.
var tooBusy atomic.Int64

// reported fails the test unless the caller of an operation received the table's
// outcome. began is the start of the operation. On a very busy machine, reported also
// accepts ErrUnavailable if the engine has used up its time for the call. Then it waits
// until the key has the given number of holds, and returns false.
func (r *rig) reported(err error, began time.Time, holds int) bool {
	r.t.Helper()
	if errors.Is(err, r.cell.says) {
		return true
	}
	if took := time.Since(began); !errors.Is(err, core.ErrUnavailable) || took < usedUp {
		r.t.Errorf("the caller got %v after %v, want %v", err, took, r.cell.says)
	}
	tooBusy.Add(1)
	r.starved = true
	r.eventually("what was not done in time is done in the end", func() bool { return r.with("h:") == holds })
	return false
}

// usedUp is a time after which at least two attempts have failed, and the remaining time
// is too short for a third attempt.
const usedUp = 2500 * time.Millisecond

// leave releases a lease. If the machine is too busy, the release may still be unanswered
// when Release returns.
func leave(t *testing.T, lease *core.Lease) {
	t.Helper()
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the lease is not held: %v", context.Cause(lease.Context()))
	}
	began := time.Now()
	err := lease.Release(context.Background())
	if took := time.Since(began); errors.Is(err, core.ErrUnavailable) && took >= usedUp {
		tooBusy.Add(1)
	} else if err != nil {
		t.Errorf("release: %v after %v", err, took)
	}
}
