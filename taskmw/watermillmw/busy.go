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

// Busy is the treatment of a message whose key is busy, or whose store is unavailable.
// A key is busy while another message holds its lock, or runs under the same
// idempotency key.
type Busy int

// These are the policies for messages that cannot run now.
const (
	// Reschedule waits for a busy key for 5 seconds, or for the time of core.Wait. Then
	// it pauses for 0.5 to 1 second and nacks the message, so that the broker delivers
	// the message again. If the store is unavailable, or too many other messages wait,
	// the message cannot wait for its key. The pause is then longer by the rest of the
	// wait, at most 5 seconds. If the message's context has a deadline, the message
	// waits for at most half of the time until the deadline. When the context is done,
	// the message is nacked at once.
	//
	// The 5 seconds are one bound for a Lock and an Idempotent around one handler. The
	// inner middleware waits for 5 seconds minus the wait of the outer middleware. If
	// the inner middleware has a core.Wait, its wait is not shortened.
	//
	// The outermost Lock or Idempotent pauses and nacks, after it has released its lock
	// or completed its run. So the next delivery does not find the key busy because of
	// this delivery.
	//
	// Outer middlewares get no error. So Retry does not try again, and PoisonQueue does
	// not take the message. The router logs nothing. The observer of the Locker is
	// notified.
	//
	// If a message cannot be nacked, it fails after the pause, as with Fail. This
	// applies to a message that is already acked, for example by an outer InstantAck.
	// It also applies to a message without the context of a router, such as a
	// message.Copy, because the router would not notice its nack.
	Reschedule Busy = iota
	// Skip acks a message whose key is busy, without running it. It does not wait,
	// unless core.Wait sets a wait. While the store is unavailable, Skip behaves like
	// Reschedule.
	Skip
	// Fail waits like Reschedule, and then fails the message. Outer middlewares get the
	// error. So Retry tries again, and PoisonQueue takes the message.
	Fail
)

const (
	// inlineWait is the default time for which a message waits for its keys. It is
	// shorter than the time after which brokers deliver again, which is usually at
	// least 10 seconds.
	inlineWait = 5 * time.Second
	// maxPause is the maximum pause after the wait. Nack has no delay, and brokers
	// deliver a nacked message again at once.
	maxPause = time.Second
	// unasked is a value of core.Wait that no caller passes. It means that no wait was
	// set.
	unasked = math.MaxInt64 - 1
)

// delivery is one attempt of a broker, or of an outer Retry, to process a message.
type delivery struct {
	busy  Busy
	msg   *message.Message
	ctx   context.Context // the message's context when the delivery began
	outer *run            // nil for the outermost middleware
	began time.Time
	wait  time.Duration // maximum wait for the key
}

// deliveryOf returns a delivery that begins now. asked is the value of core.Wait, or
// negative if there is none.
func deliveryOf(msg *message.Message, b Busy, asked time.Duration) *delivery {
	d := &delivery{busy: b, msg: msg, ctx: msg.Context(), outer: runOf(msg), began: time.Now(), wait: asked}
	switch {
	case asked >= 0:
	case b == Skip:
		d.wait = 0
	default:
		d.wait = max(inlineWait-d.waited(), 0)
	}
	if end, ok := d.ctx.Deadline(); ok {
		d.wait = max(min(d.wait, time.Until(end)/2), 0)
	}
	return d
}

// waited returns the time for which the outer middlewares have waited for their keys.
func (d *delivery) waited() time.Duration {
	if d.outer == nil {
		return 0
	}
	return d.outer.waited
}

func (d *delivery) run(t *tries) *run { return &run{t, d.waited() + time.Since(d.began)} }

// postpone ends a delivery that did not run because of err.
func (d *delivery) postpone(name string, err error) ([]*message.Message, error) {
	unavailable := errors.Is(err, core.ErrUnavailable)
	if d.busy == Skip && errors.Is(err, core.ErrBusy) && !unavailable && d.ctx.Err() == nil {
		return nil, nil
	}
	var busy *core.BusyError
	if errors.As(err, &busy) && !unavailable {
		// The error has no key, because a middleware may unwrap and store it.
		err = &failure{"watermillmw " + name + ": the key is busy", []error{busy.WithoutKey()}}
	} else {
		err = notRun(err)
	}
	rest := max(min(d.wait, inlineWait)-time.Since(d.began), 0)
	if d.busy == Fail {
		d.sleep(rest) // an unavailable store can answer at once
		return nil, err
	}
	return d.end(&postponement{err, time.Now().Add(rest + maxPause/2 + rand.N(maxPause/2))})
}

// end ends a postponed delivery. Under an outer middleware of this package, end only
// records the postponement. The outer middleware then nacks its own message.
func (d *delivery) end(p *postponement) ([]*message.Message, error) {
	if d.outer != nil {
		d.outer.tries.postponed = p
		return nil, nil
	}
	d.sleep(time.Until(p.until))
	if isRouted(d.ctx) && d.msg.Nack() {
		return nil, nil
	}
	return nil, p.err
}

// sleep returns after t, or when the context of the message is done.
func (d *delivery) sleep(t time.Duration) {
	pause := time.NewTimer(t)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-d.ctx.Done():
	}
}

// isRouted reports whether ctx is the context of a message of a router. The name of a
// handler can be empty, but the name of its subscriber's type cannot.
func isRouted(ctx context.Context) bool {
	return message.HandlerNameFromCtx(ctx) != "" || message.SubscriberNameFromCtx(ctx) != ""
}

// isFinal reports whether every delivery of the message would fail with err. err is the
// reason why the message did not run.
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
