package once

import (
	"errors"

	"github.com/lockkit/lockkit/core"
)

// What Do answers instead of running fn, beside the errors of core. All are
// reached with errors.Is.
var (
	// ErrInProgress says that a run of this call goes on elsewhere. The error is
	// a *core.BusyError too, unless the context ended while waiting; then it
	// matches that context's cause.
	ErrInProgress = errors.New("run in progress")
	// ErrMismatch says that the key was used before with another fingerprint. While a
	// run is in progress ErrInProgress takes its place.
	ErrMismatch = errors.New("key was used with another request")
	// ErrIndeterminate says that a run ended, that it is not known how far it
	// came, and that it is not run again.
	ErrIndeterminate = errors.New("outcome of the run is unknown")
	// ErrUnreplayable says that the work was done, but that its answer could not
	// be kept.
	ErrUnreplayable = errors.New("done before, and the answer was not kept")
)

// recordError says that what is kept under a key cannot be used. It matches
// core.ErrUnsupported: no repetition helps, and nothing is run.
type recordError string

func (e recordError) Error() string { return "kept record " + string(e) }

func (e recordError) Is(target error) bool { return target == core.ErrUnsupported }
