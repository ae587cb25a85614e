package taskmw

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/keys"
)

// failure is the reason why a task did not run. asynq stores its text and shows it in
// dashboards, so the text has no key, and no text of a KeyFunc.
type failure struct {
	text   string
	causes []error
}

func (f *failure) Error() string   { return f.text }
func (f *failure) Unwrap() []error { return f.causes }

// notRun returns err as a failure of the middleware, and not of the handler.
func notRun(err error) error { return &failure{err.Error(), []error{err}} }

// hasRun reports whether the handler has run and returned err.
func hasRun(err error) bool {
	return err == nil || !errors.As(err, new(*failure)) && !isContention(err)
}

// contention is the error of a task that did not run because its key was busy. A server
// of Configure does not count it as a failure.
type contention struct {
	failure
	after   time.Duration // the time until the holder's lease expires, or 0 if unknown
	crowded bool          // pause is set
	pause   time.Duration // the time until the task is delivered again
}

func isContention(err error) bool {
	return err != nil && errors.As(err, new(*contention))
}

// keyFailure returns the failure of a task whose key could not be found.
func (g *config) keyFailure(err error) error {
	text := "taskmw " + g.name + ": the key could not be found"
	if !errors.Is(err, core.ErrInvalid) {
		return &failure{text, []error{err}}
	}
	var own *keys.Error
	if errors.As(err, &own) {
		text = "taskmw " + g.name + ": " + own.Detail()
	}
	return &failure{text, []error{err, asynq.SkipRetry}}
}

// errNotConfigured is the error of the event core.Misused for a server without Configure.
var errNotConfigured = errors.New("a busy task uses up a retry: the server's asynq.Config is not that of taskmw.Configure")

// conflict has the data with which a middleware ends a task whose key is busy.
type conflict struct {
	*config
	locker   *core.Locker
	notified atomic.Bool
}

// end returns the middleware's result for a task that did not run because its key was
// busy.
func (c *conflict) end(ctx context.Context, d *delivery, busy *core.BusyError) error {
	if c.busy == Skip {
		return nil
	}
	// The error has no key, because a caller that inspects errors may store their
	// contents.
	err := failure{"taskmw " + c.name + ": busy", []error{busy.WithoutKey()}}
	switch {
	case c.busy == Drop:
		err.causes = append(err.causes, asynq.RevokeTask)
	case c.busy == Fail, d.last:
		return &err
	case d.server && !d.configured && c.notified.CompareAndSwap(false, true):
		adapter.Observe(ctx, c.locker, core.Event{Kind: core.Misused, Name: c.name, Err: errNotConfigured})
	}
	again := &contention{failure: err, after: busy.RetryAfter}
	if d.crowd != nil {
		again.crowded, again.pause = true, d.crowds.pause(d.crowd, d.task)
	}
	return again
}
