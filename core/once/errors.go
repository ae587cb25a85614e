package once

import (
	"errors"

	"github.com/lockkit/lockkit/core"
)

// The errors of Do when it does not run fn, beside the errors of core. Use errors.Is to
// find them.
var (
	// ErrInProgress is returned when a run of this call is in progress elsewhere. The
	// error is a *core.BusyError too, unless the context was done while waiting; then
	// it matches the context's cause.
	ErrInProgress = errors.New("run in progress")
	// ErrMismatch is returned when the key was used before with another fingerprint.
	// While a run is in progress ErrInProgress takes its place.
	ErrMismatch = errors.New("key was used with another request")
	// ErrIndeterminate is returned when a run did not finish, its progress is unknown,
	// and it is not run again.
	ErrIndeterminate = errors.New("outcome of the run is unknown")
	// ErrUnreplayable is returned when the work was done, but its answer could not be
	// stored.
	ErrUnreplayable = errors.New("done before, and the answer was not kept")
)

// recordError is returned when the record under a key cannot be used. It matches
// core.ErrUnsupported: no repetition helps, and nothing is run.
type recordError string

func (e recordError) Error() string { return "kept record " + string(e) }

func (e recordError) Is(target error) bool { return target == core.ErrUnsupported }
