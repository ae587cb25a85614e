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
// Idempotent has a separate record for each run. A Lock shares the record of the outer
// middleware. A record can have several tries, because of an inner Retry.
type tries struct {
	uuid, handler string

	recorded  int           // the number of records of tries that reached the handler
	unclear   bool          // the progress of the last of these tries is unknown
	postponed *postponement // the postponement of the last try, or nil
}

// postponement describes a try that did not run and whose message has to be nacked.
type postponement struct {
	err   error     // the failure of a message that cannot be nacked
	until time.Time // the earliest time of the nack
}

func newTries(msg *message.Message) *tries {
	return &tries{uuid: msg.UUID, handler: message.HandlerNameFromCtx(msg.Context())}
}

// runOf returns the innermost run around msg, or nil. It compares UUIDs and handler
// names, because a handler can publish another message under the context of its own
// message. A broker in memory can deliver the published message with that context.
func runOf(msg *message.Message) *run {
	ctx := msg.Context()
	r, ok := ctx.Value(runKey{}).(*run)
	if !ok || r.tries.uuid != msg.UUID || r.tries.handler != message.HandlerNameFromCtx(ctx) {
		return nil
	}
	return r
}

// record records whether the progress of a try is unclear. before is the number of
// records before the try. If inner middlewares have recorded the try too, its progress
// is unclear if one of them found it so.
func (t *tries) record(before int, unclear bool) {
	if t.postponed == nil {
		t.unclear = unclear || t.recorded > before && t.unclear
		t.recorded++
	}
}

// add records the tries of an inner Idempotent.
func (t *tries) add(inner *tries) {
	if inner.recorded > 0 {
		t.recorded++
		t.unclear = inner.unclear
	}
}

var errPostponed = errors.New("the message was postponed")

// outcome returns the error of a run for package once. The last try of the run returned
// err. If no try reached the handler, the run is withdrawn, unless a middleware in
// between has called once.AttemptFromContext. Otherwise the last try that reached the
// handler decides. If its progress is unknown, the outcome is unknown too.
func (t *tries) outcome(ctx context.Context, msg *message.Message, err error) error {
	skipped := t.postponed != nil || isNotRun(err)
	switch {
	case t.postponed != nil && err == nil:
		err = errPostponed
	case err == nil && isNacked(msg):
		return errors.New("the message was nacked")
	}
	switch {
	case skipped && t.recorded == 0 && !adapter.AttemptAsked(ctx):
		return once.Withdraw(err)
	case err != nil && t.unclear:
		return fmt.Errorf("%w: %w", once.ErrIndeterminate, err)
	}
	return err
}

// isUnclear reports whether the progress of a handler is unknown. err is the error that
// the handler returned under ctx. A time-out middleware can have left its own context,
// which is canceled, in msg.
func isUnclear(ctx context.Context, msg *message.Message, err error) bool {
	return err != nil && (ctx.Err() != nil || errors.Is(msg.Context().Err(), context.DeadlineExceeded) ||
		errors.Is(err, once.ErrIndeterminate) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}

// isNotRun reports whether err is a failure of a middleware of this package.
func isNotRun(err error) bool { return errors.As(err, new(*failure)) }

// isNacked reports whether msg was nacked, so that the broker delivers it again.
func isNacked(msg *message.Message) bool {
	select {
	case <-msg.Nacked():
		return true
	default:
		return false
	}
}
