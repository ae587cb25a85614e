package once

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Why a run failed, as the observer is told it. What fn itself says stays between it
// and its caller: it can be a customer's data.
var (
	errFailed     = errors.New("the work returned an error")
	errNotFinal   = errors.New("the work marked its answer as not final")
	errPanicked   = errors.New("the work did not return")
	errRolledBack = errors.New("the transaction of its answer was not committed")
	errWithdrawn  = errors.New("the run was taken back, its work had not begun")
)

// telling is what the observer is told of a call, once, at its end.
type telling struct {
	ctx    context.Context
	locker *core.Locker
	event  core.Event // what Begin reports, and then the rest
	begun  time.Time  // since when the run is held
	worked error      // what fn returned
	saved  error      // whether its end could be saved
}

// ran notes that fn is called. Until it is known better, it does not return.
func (t *telling) ran(attempt int) {
	t.event.Kind, t.event.Attempt, t.worked = core.Ran, attempt, errPanicked
}

// withdrawn notes that the run counts as none.
func (t *telling) withdrawn() {
	t.event.Kind, t.event.Attempt, t.event.Err = core.Refused, 0, errWithdrawn
}

// ended notes how a call ended that did not run.
func (t *telling) ended(out Outcome, err error) {
	switch {
	case t.event.Kind != 0:
	case err == nil:
		t.event.Kind, t.event.Attempt = core.Replayed, out.Attempt
	default:
		t.event.Kind, t.event.Attempt, t.event.Err = core.Refused, out.Attempt, discreet(err)
	}
}

// tell tells the observer.
func (t *telling) tell() {
	if t.event.Kind == core.Ran {
		t.event.Held = time.Since(t.begun)
		t.event.Err = t.failure()
	}
	if t.event.Name != "" && t.event.Kind != 0 { // it began
		engine.Observe(t.locker, t.ctx, t.event)
	}
}

// failure is why the run failed.
func (t *telling) failure() error {
	why := t.worked
	if why != nil && !errors.Is(why, errPanicked) && !errors.Is(why, errNotFinal) && !errors.Is(why, errRolledBack) {
		why = errFailed
	}
	switch {
	case t.saved == nil:
		return why
	case why == nil:
		return t.saved
	}
	return fmt.Errorf("%w (%w)", why, t.saved)
}

// discreet is err, of a call that did not run, without the key of a *core.BusyError.
func discreet(err error) error {
	var busy *core.BusyError
	ok := errors.As(err, &busy)
	if !ok {
		return err
	}
	return fmt.Errorf("%w: %w", ErrInProgress, busy.WithoutKey())
}
