package once

import (
	"errors"

	"github.com/lockkit/lockkit/core"
)

// These are the errors of Do when it does not run fn, in addition to the errors of
// core. Use errors.Is to find them.
var (
	// ErrInProgress is returned when a run of this call is in progress elsewhere. The
	// error also wraps a *core.BusyError. If the context was done during the wait, the
	// error wraps no *core.BusyError, but matches core.ErrBusy and the context's cause.
	ErrInProgress = errors.New("lockkit: run in progress")
	// ErrMismatch is returned when the key was used before with another fingerprint.
	// While a run is in progress, ErrInProgress is returned instead.
	ErrMismatch = errors.New("lockkit: key was used with another request")
	// ErrIndeterminate is returned when a run did not finish, and is not run again
	// because its progress is unknown.
	ErrIndeterminate = errors.New("lockkit: outcome of the run is unknown")
	// ErrUnreplayable is returned when the work was done before, but its answer was not
	// stored.
	ErrUnreplayable = errors.New("lockkit: done before, the answer was not stored")
)

// recordError is returned when the record under a key cannot be used. It matches
// core.ErrUnsupported: fn is not run, and a repeated call fails too.
type recordError string

func (e recordError) Error() string { return "stored record " + string(e) }

func (e recordError) Is(target error) bool { return target == core.ErrUnsupported }

// inProgress wraps ErrInProgress and the busy error of the claim. Its text omits the
// text of the busy error. cause is set if the caller's context was done during the wait.
type inProgress struct{ busy, cause error }

func (e inProgress) Error() string {
	if e.cause != nil {
		return ErrInProgress.Error() + ": " + e.cause.Error()
	}
	return ErrInProgress.Error()
}

func (e inProgress) Unwrap() []error { return []error{ErrInProgress, e.busy} }
