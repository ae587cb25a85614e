package taskmw

import (
	"context"
	"math"
	"time"

	"github.com/hibiken/asynq"
)

// Busy says what becomes of a task whose key is busy: another task has the lock,
// or is being run under the same idempotency key.
//
// Each policy first waits in-line, in the worker's slot, for as long as
// core.Wait says; without it as said below. A wait never lasts so long that
// nothing is left for the handler: it ends a tenth of the time left before the
// task's deadline, 5 seconds at most.
type Busy int

// The policies for busy keys.
const (
	// Reschedule waits for a second, or a tenth of the time that the task has
	// left if that is less, and then has the server deliver the task again
	// later. With Configure that is no failure: no retry is burned, and the
	// ErrorHandler is not told. The server takes up such tasks every
	// asynq.Config.DelayedTaskCheckInterval, 5 seconds by default.
	//
	// A task on its last attempt would be archived by that, so it waits in-line
	// for as long as it can, whatever core.Wait says, and only then fails.
	Reschedule Busy = iota
	// Wait is Reschedule that waits in-line for as long as the task's deadline
	// allows. Many such tasks on one key can take all slots of a server.
	Wait
	// Drop does not wait. The task is removed, and counts as processed.
	Drop
	// Skip does not wait. The task counts as done.
	Skip
	// Fail waits as Reschedule does. The task then fails as by an error of its
	// handler: it burns a retry, and is archived if it had none left.
	Fail
)

const (
	inlineWait = time.Second
	margin     = 5 * time.Second
	forever    = time.Duration(math.MaxInt64)
)

// delivery is one attempt of a server to get a task done.
type delivery struct {
	server     bool          // there is a server; in a unit test there is none
	configured bool          // by Configure
	last       bool          // the task is archived if this attempt fails
	left       time.Duration // until its deadline; forever if it has none
}

func deliveryOf(ctx context.Context) delivery {
	d := delivery{left: forever}
	if end, ok := ctx.Deadline(); ok {
		d.left = time.Until(end)
	}
	most, ok := asynq.GetMaxRetry(ctx)
	if !ok {
		return d
	}
	retried, _ := asynq.GetRetryCount(ctx)
	d.server, d.last = true, retried >= most
	d.configured = ctx.Value(configuredKey{}) != nil
	return d
}

// patience is how long the delivery waits in-line. asked is what core.Wait says,
// less than 0 if nothing.
func (b Busy) patience(d delivery, asked time.Duration) time.Duration {
	wait := asked
	switch {
	case b == Reschedule && d.last, b == Wait && (d.last || asked < 0):
		wait = forever
	case asked >= 0:
	case b == Drop, b == Skip:
		wait = 0
	default:
		wait = min(inlineWait, d.left/10)
	}
	if d.left < forever {
		wait = min(wait, d.left-min(margin, d.left/10))
	}
	return max(wait, 0)
}
