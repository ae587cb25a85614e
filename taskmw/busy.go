package taskmw

import (
	"context"
	"math"
	"time"

	"github.com/hibiken/asynq"
)

// Busy is the policy for a task whose key is busy. Another task then has the lock, or
// runs under the same idempotency key.
//
// Each policy first waits in-line, in the worker's slot, for the time of core.Wait.
// Without core.Wait it waits for the time stated at the policy. On a task's last
// attempt, Reschedule and Wait ignore core.Wait. If the task has a deadline, a wait
// leaves time for the handler: a tenth of the time until the deadline, at most 5
// seconds.
//
// With Reschedule, a server of Configure limits the number of waiting tasks. At most
// one task of each key waits. All waiting tasks together take at most half of the
// server's slots, or the only slot. These limits do not apply to a task on its last
// attempt.
type Busy int

// The policies for busy keys.
const (
	// Reschedule waits for a second, or for a tenth of the time until the task's
	// deadline if that is less. Then it makes the server deliver the task again later.
	// If another task of the key already waits, the task is rescheduled without a wait.
	// With Configure a rescheduled task is not a failure. It uses up no retry, and
	// causes no call of the ErrorHandler. About as many tasks as the key can serve come
	// back within a tick of the server (see Configure), and the other tasks within 30
	// seconds.
	//
	// asynq archives a task that is rescheduled on its last attempt. So on its last
	// attempt a task waits in-line for as long as its deadline allows, regardless of
	// core.Wait and of other waiting tasks. The task fails only after this wait.
	Reschedule Busy = iota
	// Wait works like Reschedule, but a task waits even if another task of the key
	// already waits. Without core.Wait it waits in-line for as long as the task's
	// deadline allows. Many such tasks on one key can take all slots of a server.
	Wait
	// Drop does not wait, unless core.Wait sets a wait. The task is removed, and counts
	// as processed.
	Drop
	// Skip does not wait, unless core.Wait sets a wait. The task counts as done.
	Skip
	// Fail waits for a second, or for a tenth of the time until the task's deadline if
	// that is less. It waits even if another task of the key waits, and even on a last
	// attempt. The task then fails as after an error of its handler. It uses up a
	// retry. If it has no retry left, it is archived instead.
	Fail
)

const (
	inlineWait = time.Second
	margin     = 5 * time.Second
	forever    = time.Duration(math.MaxInt64)
)

// delivery is one attempt of a server to process a task.
type delivery struct {
	server     bool          // the task is processed by a server, and not in a unit test
	configured bool          // the server was configured by Configure
	last       bool          // the task is archived if this attempt fails
	left       time.Duration // the time until the task's deadline, or forever

	// The fields below are used only if configured is set.
	crowds  *crowds
	task    string
	places  []place   // the keys that the delivery acquires
	crowd   *crowd    // the crowd with which the task comes back if its key stays busy
	waits   bool      // the task counts as a waiting task
	refused bool      // the task must not wait
	began   time.Time // the time at which the keys were granted
}

func deliveryOf(ctx context.Context) *delivery {
	d := &delivery{left: forever}
	if end, ok := ctx.Deadline(); ok {
		d.left = time.Until(end)
	}
	most, ok := asynq.GetMaxRetry(ctx)
	if !ok {
		return d
	}
	retried, _ := asynq.GetRetryCount(ctx)
	d.server, d.last = true, retried >= most
	d.crowds, d.configured = ctx.Value(configuredKey{}).(*crowds)
	d.task, _ = asynq.GetTaskID(ctx)
	return d
}

// enter registers the keys that the delivery is about to acquire. It does nothing on a
// server without Configure, and for the policies Drop and Skip. After enter, patience
// returns the allowed wait, and end has to be called.
func (d *delivery) enter(c *conflict, run bool, keys ...string) {
	if !d.configured || c.busy == Drop || c.busy == Skip {
		return
	}
	d.places = make([]place, len(keys))
	for i, key := range keys {
		d.places[i] = place{locker: c.locker, key: key}
		if run {
			d.places[i].run = c.name
		}
	}
	d.crowd, d.waits = d.crowds.enter(d.places, d.task, d.last || c.busy != Reschedule)
	d.refused = !d.waits
}

// leave ends the delivery's wait. Only the first call counts.
func (d *delivery) leave(granted bool) {
	if d.waits {
		d.waits = false
		d.crowds.leave(d.places, granted)
	}
}

// begin records that the delivery was granted its keys. The keys count as held until
// end.
func (d *delivery) begin() {
	if d.places != nil {
		d.began = time.Now()
		d.leave(true)
	}
}

func (d *delivery) end() {
	d.leave(false)
	if !d.began.IsZero() {
		d.crowds.held(d.places, time.Since(d.began))
	}
}

// patience returns the time for which the delivery waits in-line. asked is the time of
// core.Wait, or negative without core.Wait.
func (b Busy) patience(d *delivery, asked time.Duration) time.Duration {
	wait := asked
	switch {
	case d.refused:
		return 0
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
