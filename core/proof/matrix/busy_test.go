package matrix_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

// tooBusy counts what could not be done because the machine is too busy.
var tooBusy atomic.Int64

// told fails the test unless the caller was told what the table says, of a call
// that began at the given time. A machine that is so busy that all the time is
// used up which the engine has for the call may also say ErrUnavailable; then the
// key has so many holds, in the end. That is false.
func (r *rig) told(err error, began time.Time, holds int) bool {
	r.t.Helper()
	if errors.Is(err, r.cell.says) {
		return true
	}
	if took := time.Since(began); !errors.Is(err, core.ErrUnavailable) || took < usedUp {
		r.t.Errorf("the caller is told %v after %v, want %v", err, took, r.cell.says)
	}
	tooBusy.Add(1)
	r.starved = true
	r.eventually("what was not done in time is done in the end", func() bool { return r.with("h:") == holds })
	return false
}

// usedUp is when at least two attempts have been given up, and the rest is not
// enough for another one.
const usedUp = 2500 * time.Millisecond

// leave releases a lease, which may take longer than Release does on a machine
// that is too busy.
func leave(t *testing.T, lease *core.Lease) {
	t.Helper()
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the lease has ended: %v", context.Cause(lease.Context()))
	}
	began := time.Now()
	err := lease.Release(context.Background())
	if took := time.Since(began); errors.Is(err, core.ErrUnavailable) && took >= usedUp {
		tooBusy.Add(1)
	} else if err != nil {
		t.Errorf("release: %v after %v", err, took)
	}
}
