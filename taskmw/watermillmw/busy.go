package watermillmw

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
)

// Busy says what becomes of a message that cannot run now: its key is busy, since another
// message has the lock or is being run under the same idempotency key, or the store is
// unavailable.
type Busy int

// The policies for messages that cannot run now.
const (
	// Reschedule waits for a busy key for 5 seconds, or as core.Wait says. Then it pauses for
	// 0.5 to 1 second and nacks the message, so that the broker delivers it again. A message
	// that could not wait, since the store is unavailable or too many others wait, pauses for
	// the rest of that time too, of 5 seconds at most. Where the message's context has a
	// deadline, a message waits for half of the time until then at most. When the context is
	// done, the message is nacked at once.
	//
	// Outer middlewares get no error: Retry does not try again, PoisonQueue does not take the
	// message, and the router logs nothing. The observer of the Locker is notified.
	//
	// A message that was acked before, as by an outer InstantAck, cannot be nacked. It is
	// treated as by Fail.
	Reschedule Busy = iota
	// Skip acks a message whose key is busy, without running it. It does not wait, unless
	// core.Wait says so. While the store is unavailable it is Reschedule.
	Skip
	// Fail waits as Reschedule does, and then fails the message with an error, for the outer
	// middlewares: Retry tries again, PoisonQueue takes it.
	Fail
)

const (
	// inlineWait is how long a message waits for its key where nothing else was said. It is
	// below the time after which brokers deliver again: 10 seconds is the shortest usual one.
	inlineWait = 5 * time.Second
	// maxPause is the longest pause after that. Nack has no delay, and brokers deliver at once.
	maxPause = time.Second
	// unasked is a wait that no caller asks for.
	unasked = math.MaxInt64 - 1
)

// delivery is one attempt of a broker to get a message done.
type delivery struct {
	busy  Busy
	msg   *message.Message
	ctx   context.Context // of msg, as it came
	began time.Time
	wait  time.Duration // for the key
}

// deliveryOf returns a delivery that begins now. asked is what core.Wait says, negative if
// nothing.
func deliveryOf(msg *message.Message, b Busy, asked time.Duration) *delivery {
	d := &delivery{busy: b, msg: msg, ctx: msg.Context(), began: time.Now(), wait: asked}
	switch {
	case asked >= 0:
	case b == Skip:
		d.wait = 0
	default:
		d.wait = inlineWait
	}
	if end, ok := d.ctx.Deadline(); ok {
		d.wait = max(min(d.wait, time.Until(end)/2), 0)
	}
	return d
}

// postpone ends a delivery that did not run because of err.
func (d *delivery) postpone(name string, err error) ([]*message.Message, error) {
	unavailable := errors.Is(err, core.ErrUnavailable)
	if d.busy == Skip && errors.Is(err, core.ErrBusy) && !unavailable && d.ctx.Err() == nil {
		return nil, nil
	}
	if d.busy != Fail {
		rest := max(min(d.wait, inlineWait)-time.Since(d.began), 0)
		pause := time.NewTimer(rest + maxPause/2 + rand.N(maxPause/2))
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-d.ctx.Done():
		}
		if d.msg.Nack() {
			refuse(d.ctx)
			return nil, nil
		}
	}
	var busy *core.BusyError
	if errors.As(err, &busy) && !unavailable {
		// Without the key: a middleware that takes errors apart may store what is in them.
		return nil, &failure{"watermillmw " + name + ": busy", []error{busy.WithoutKey()}}
	}
	return nil, notRun(err)
}

// isFinal reports whether err, for which a message did not run, stays with every delivery.
func isFinal(err error) bool {
	for _, final := range []error{
		core.ErrInvalid, core.ErrUnsupported, once.ErrMismatch, once.ErrIndeterminate, once.ErrUnreplayable,
	} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

type refusedKey struct{}

// refuse notes for the Idempotents around that the message of ctx has not run.
func refuse(ctx context.Context) {
	if refused, ok := ctx.Value(refusedKey{}).(*bool); ok {
		*refused = true
	}
}

// refusing returns a context in which refuse sets refused, for this and all outer ones.
func refusing(ctx context.Context) (inside context.Context, refused *bool) {
	if refused, ok := ctx.Value(refusedKey{}).(*bool); ok {
		return ctx, refused
	}
	refused = new(bool)
	return context.WithValue(ctx, refusedKey{}, refused), refused
}
