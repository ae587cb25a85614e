package watermillmw

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/once"
)

// tries records the outcome of a message in the inner middlewares and the handler. An
// Idempotent has a record for each run. A Lock shares the record of the middleware around it.
// An inner Retry makes several tries.
type tries struct {
	uuid, handler string

	ran       bool          // a try reached the handler
	unclear   bool          // how far the last of these tries came is unknown
	postponed *postponement // of the last try; nil if it was not postponed
}

// postponement is a try that did not run, and is to be nacked.
type postponement struct {
	err   error     // the failure of a message that cannot be nacked
	until time.Time // the earliest time of the nack
}

func newTries(msg *message.Message) *tries {
	return &tries{uuid: msg.UUID, handler: message.HandlerNameFromCtx(msg.Context())}
}

// runOf returns the innermost run around msg, or nil. A message that a handler publishes
// itself, under the context of its own message, is another message: a broker in memory can
// deliver it with that context.
func runOf(msg *message.Message) *run {
	ctx := msg.Context()
	r, ok := ctx.Value(runKey{}).(*run)
	if !ok || r.tries.uuid != msg.UUID || r.tries.handler != message.HandlerNameFromCtx(ctx) {
		return nil
	}
	return r
}

// record records a try under ctx that failed with err, or panicked if it has not returned.
func (t *tries) record(ctx context.Context, err error, returned bool) {
	if t.postponed == nil && !isNotRun(err) {
		t.ran, t.unclear = true, returned && isUnclear(ctx, err)
	}
}

// add records the tries of an inner Idempotent.
func (t *tries) add(inner *tries) {
	if inner.ran {
		t.ran, t.unclear = true, inner.unclear
	}
}

var errPostponed = errors.New("the message was postponed")

// outcome returns the error of a run for once, whose last try returned err. If no try reached
// the handler there was no run, unless a middleware in between has asked for its attempt and
// may have acted on that. Otherwise the last try that reached the handler decides. After an
// error that does not mean that nothing was done, the outcome is open.
func (t *tries) outcome(ctx context.Context, msg *message.Message, err error) error {
	skipped := t.postponed != nil || isNotRun(err)
	switch {
	case t.postponed != nil && err == nil:
		err = errPostponed
	case err == nil && isNacked(msg):
		return errors.New("the message was nacked")
	}
	switch {
	case skipped && !t.ran && !adapter.AttemptAsked(ctx):
		return once.Withdraw(err)
	case skipped && t.unclear, !skipped && isUnclear(ctx, err):
		return fmt.Errorf("%w: %w", once.ErrIndeterminate, err)
	}
	return err
}

// isUnclear reports whether err, the error of a handler under ctx, leaves open how far the
// handler came.
func isUnclear(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}

// isNotRun reports whether err is a failure of a middleware of this package.
func isNotRun(err error) bool { return errors.As(err, new(*failure)) }

// isNacked reports whether the broker will deliver msg again.
func isNacked(msg *message.Message) bool {
	select {
	case <-msg.Nacked():
		return true
	default:
		return false
	}
}
