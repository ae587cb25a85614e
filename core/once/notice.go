package once

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
)

// These are the reasons that the observer gets for a failed run. The observer does not
// get the text of fn's own error, which can contain a customer's data.
var (
	errFailed     = errors.New("the work returned an error")
	errNotFinal   = errors.New("the work marked its answer as not final")
	errPanicked   = errors.New("the work did not return")
	errRolledBack = errors.New("the transaction of its answer was not committed")
	errWithdrawn  = errors.New("the run was taken back, its work had not begun")
)

// notice collects the data of a call's event. The observer is notified once, when Do
// returns.
type notice struct {
	ctx    context.Context
	locker *core.Locker
	event  core.Event // filled by Begin, and then by the methods below
	begun  time.Time  // the time at which Begin returned
	worked error      // the error of fn
	saved  error      // the error of saving the run's result
}

// ran records that fn is called. worked is errPanicked until fn returns.
func (t *notice) ran(attempt int) {
	t.event.Kind, t.event.Attempt, t.worked = core.Ran, attempt, errPanicked
}

// withdrawn records that the run was withdrawn and does not count.
func (t *notice) withdrawn() {
	t.event.Kind, t.event.Attempt, t.event.Err = core.Refused, 0, errWithdrawn
}

// ended records the result of a call in which fn did not run.
func (t *notice) ended(out Outcome, err error) {
	switch {
	case t.event.Kind != 0:
	case err == nil:
		t.event.Kind, t.event.Attempt = core.Replayed, out.Attempt
	default:
		t.event.Kind, t.event.Attempt, t.event.Err = core.Refused, out.Attempt, discreet(err)
	}
}

// notify notifies the observer of the event, if Begin has filled it.
func (t *notice) notify() {
	if t.event.Kind == core.Ran {
		t.event.Held = time.Since(t.begun)
		t.event.Err = t.failure()
	}
	if t.event.Name != "" && t.event.Kind != 0 { // Begin has set the name
		engine.Observe(t.locker, t.ctx, t.event)
	}
}

// failure returns the reason of the run's failure, or nil.
func (t *notice) failure() error {
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

// discreet returns the error for the event of a call in which fn did not run. If err
// wraps a *core.BusyError, the result is ErrInProgress with a copy of the BusyError that
// has no key. Otherwise the result is err.
func discreet(err error) error {
	if err == nil {
		return nil
	}
	var busy *core.BusyError
	if !errors.As(err, &busy) {
		return err
	}
	return inProgress{busy: busy.WithoutKey()}
}
