package watermillmw

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/once"
)

// Idempotent is a middleware that runs a message once: one that comes again under the same key,
// after a success, is acked without being run, and the messages that the run has produced are
// published again, with the same UUIDs, payloads and metadata. With UUID as the key it protects
// from what a broker delivers twice; with a key of the metadata or the payload also from
// producers that publish twice. once.Retain and once.AtMostOnce say how long a success is
// remembered, and what becomes of a run that died midway.
//
// The name of the router's handler is a part of the call, so that each of several handlers of
// one topic runs a message once. A handler that is renamed runs it again. Services that share a
// store need names of their own.
//
// A run that failed is run again when the message comes again; once.AttemptFromContext returns
// how many there were. A Retry in an inner middleware tries within one attempt. For
// once.AtMostOnce, an error of a handler whose context is done, or that matches
// context.Canceled or context.DeadlineExceeded, says that it is not known how far it came: that
// run died midway. After other errors, and after a nack of the handler's own, it runs again.
// After once.NotFinal and nil this message is acked, and a later one under its key runs again.
// While the message is being run elsewhere the key is busy, see Busy. A message whose payload
// differs from the one that the key was used for fails with once.ErrMismatch.
//
// The handler runs under the context of a lease, which is derived from the message's and is
// canceled when the lease is lost. What it returns stands, also if its success could not be
// noted: the message is acked, but a later one may run again. The run is held until the handler
// returns, as Lock holds its lock.
//
// Of produced messages 256 KiB are kept. A run that has produced more is acked if all of them
// were published. If the message comes again it fails with once.ErrUnreplayable, since it is not
// known whether they were.
//
// After Commit the database decides: the message is acked if the transaction was committed,
// whatever the handler returns, and comes again if it was rolled back or that is not known.
//
// A message that a Lock inside has nacked without running it is no attempt. Mount Idempotent
// inside of a Lock where duplicates are rare: outside, a message that finds the lock busy costs
// two more calls.
//
// It panics if o or key is nil, name is not of the form [A-Za-z0-9._-]+ or has more than 64
// bytes, or an option is nil or for Lock only. The middleware is safe for concurrent use.
func Idempotent(o *once.Once, name string, key KeyFunc, opts ...Option) message.HandlerMiddleware {
	if o == nil {
		panic("watermillmw: Idempotent: the Once is nil")
	}
	g := configure("Idempotent", name, key, opts)
	if len(g.acquire)+len(g.also) > 0 {
		panic("watermillmw: Idempotent: Acquire and Also are for Lock; how runs are claimed is set by once.Acquire")
	}
	if g.open {
		panic("watermillmw: Idempotent: FailOpen is for Lock")
	}
	m := &idempotent{config: g, once: o, key: key}
	l, acquire := adapter.Terms(o)
	if m.wait = waitOf("Idempotent", l, acquire); m.wait == 0 {
		m.wait = -1 // which is what a Once does if nothing was said
	}
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) { return m.process(msg, next) }
	}
}

type idempotent struct {
	*config
	once *once.Once
	key  KeyFunc
	wait time.Duration
}

func (m *idempotent) process(msg *message.Message, next message.HandlerFunc) ([]*message.Message, error) {
	call, err := m.call(msg)
	if err != nil {
		return nil, m.keyFailure(err)
	}
	d := deliveryOf(msg, m.busy, m.wait)
	ran, committed, refused := false, false, new(bool)
	var produced []*message.Message
	var failed error
	out, err := m.once.With(core.Wait(d.wait)).Do(d.ctx, call, func(ctx context.Context) (once.Answer, error) {
		ran = true
		var inside context.Context
		inside, refused = refusing(ctx)
		produced, failed = under(inside, msg, next)
		committed = adapter.Committed(ctx)
		if !adapter.IsFinal(ctx) {
			once.NotFinal(d.ctx) // an Idempotent outside has the same answer
		}
		if err := outcome(ctx, msg, *refused, failed); err != nil {
			return once.Answer{}, err
		}
		return answerOf(produced), nil
	})
	switch {
	case err == nil && (committed || !ran): // as it is stored
		if produced, err = producedOf(out.Value); err != nil {
			return nil, notRun(err)
		}
		return produced, nil
	case committed && errors.Is(err, core.ErrUnavailable):
		return d.postpone(m.name, err) // the next delivery finds out
	case committed && failed == nil:
		return nil, err // it was rolled back
	case ran && *refused && failed == nil && !isNacked(msg):
		// What was nacked is another message: a middleware in between has passed on a copy.
		if !msg.Nack() {
			return nil, notRun(err)
		}
		return nil, nil
	case ran:
		return produced, failed // stored or not
	case isFinal(err):
		return nil, notRun(err)
	}
	return d.postpone(m.name, err)
}

var errNacked = errors.New("the message was nacked")

// outcome is what once is to know of a run that returned err. If a middleware of this package
// refused the message there was no run, unless something in between has asked for its attempt
// and may have acted on that. An error that does not say that nothing was done leaves it open.
func outcome(ctx context.Context, msg *message.Message, refused bool, err error) error {
	switch {
	case refused && !adapter.AttemptAsked(ctx):
		return once.Withdraw(errNacked)
	case err == nil && isNacked(msg):
		return errNacked
	case err == nil:
		return nil
	case isNotRun(err) && !adapter.AttemptAsked(ctx):
		return once.Withdraw(err)
	case isNotRun(err):
		return err
	case ctx.Err() != nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", once.ErrIndeterminate, err)
	}
	return err
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

// call is what msg asks for.
func (m *idempotent) call(msg *message.Message) (once.Call, error) {
	value, err := m.key(msg)
	if err != nil {
		return once.Call{}, err
	}
	key, err := sourceOf("key").Key(m.name, value)
	if err != nil {
		return once.Call{}, err
	}
	c := once.Call{Name: m.name, Scope: message.HandlerNameFromCtx(msg.Context()), Key: strings.TrimPrefix(key, m.name+":")}
	if m.fingerprint == nil {
		sum := sha256.Sum256(msg.Payload)
		c.Fingerprint = sum[:]
		return c, nil
	}
	if value, err = m.fingerprint(msg); err != nil {
		return once.Call{}, err
	}
	if value == "" {
		return once.Call{}, sourceOf("fingerprint").Bad("is empty")
	}
	sum := sha256.Sum256([]byte(value))
	c.Fingerprint = sum[:]
	return c, nil
}
