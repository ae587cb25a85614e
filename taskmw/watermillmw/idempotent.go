package watermillmw

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/once"
)

// Idempotent returns a middleware that runs a message once. After a success, a
// duplicate under the same key is acked without a run. The messages that the run has
// produced are published again, with the same UUIDs, payloads and metadata. With UUID
// as the key, Idempotent protects from a broker that delivers twice. With a key from
// the metadata or the payload, it also protects from a producer that publishes twice.
// once.Retain sets the time for which a success is remembered, and once.AtMostOnce
// prevents another run after a run that died midway.
//
// The name of the router's handler is a part of the call's identity, so that each of
// several handlers of one topic runs a message once. A renamed handler runs messages
// again that are delivered again, unless HandlerName sets the name. Services that share
// a store need different handler names. Without HandlerName, a message that lacks the
// context of a router fails with core.ErrInvalid, for example a message.Copy without
// the context of the original.
//
// A failed run is repeated when the message is delivered again. once.AttemptFromContext
// returns the number of the attempt. All tries of an inner Retry are one attempt. For
// once.AtMostOnce, a failed run has died midway if the handler's progress is unknown.
// The progress is unknown if the handler's context is done, or if the error matches
// context.Canceled, context.DeadlineExceeded or once.ErrIndeterminate. After other
// errors, and after a nack by the handler, the message runs again. A handler can call
// once.NotFinal and return nil. This message is then acked, and a later message under
// its key runs. While the message runs elsewhere, its key is busy; see Busy. A message
// whose payload, or whose Fingerprint, differs from that of the first message under its
// key fails with once.ErrMismatch.
//
// The handler runs under the context of a lease. That context is derived from the
// message's context, and is canceled when the lease is lost. The handler's result
// counts even if its success could not be stored. The message is then acked, but a
// later message under its key may run. Idempotent holds the run until the handler
// returns, as Lock holds its lock.
//
// At most 256 KiB of produced messages are stored. A run that has produced more is
// acked if all of its messages were published. A duplicate of the run's message fails
// with once.ErrUnreplayable. It is not recorded whether all messages of the run were
// published.
//
// After Commit the database decides. The message is acked if the transaction was
// committed, whatever the handler returns. The message is delivered again if the
// transaction was rolled back or its outcome is unknown.
//
// A message that an inner Lock has postponed does not count as an attempt. There are
// two exceptions: an earlier try of an inner Retry that has reached the handler, and a
// call of once.AttemptFromContext between the two middlewares. Mount Idempotent inside
// a Lock if duplicates are rare. An outer Idempotent costs two more calls to the store
// when the lock is busy.
//
// Idempotent panics if o or key is nil, or if name is not of the form [A-Za-z0-9._-]+
// or has more than 64 bytes. It also panics for an option that is nil or for Lock only.
// The middleware is safe for concurrent use.
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
	m.wait = waitOf("Idempotent", l, append([]core.AcquireOption{core.Wait(unasked)}, acquire...))
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
	ran, committed, t := false, false, newTries(msg)
	var produced []*message.Message
	var failed error
	out, err := m.once.With(core.Wait(d.wait)).Do(d.ctx, call, func(ctx context.Context) (once.Answer, error) {
		ran = true
		produced, failed = under(ctx, msg, d.run(t), next)
		committed = adapter.Committed(ctx)
		if !adapter.IsFinal(ctx) {
			once.NotFinal(d.ctx) // the run of an outer Idempotent is not final either
		}
		if err := t.outcome(ctx, msg, failed); err != nil {
			return once.Answer{}, err
		}
		return answerOf(produced), nil
	})
	if d.outer != nil {
		d.outer.tries.add(t)
	}
	switch {
	case err == nil && (committed || !ran): // return the stored messages
		if produced, err = producedOf(out.Value); err != nil {
			return nil, notRun(err)
		}
		return produced, nil
	case committed && errors.Is(err, core.ErrUnavailable):
		return d.postpone(m.name, err) // the next delivery finds the outcome
	case committed && failed == nil:
		return nil, err // the transaction was rolled back
	case t.postponed != nil && failed == nil:
		return d.end(t.postponed)
	case ran:
		return produced, failed // even if the success could not be stored
	case isFinal(err):
		return nil, notRun(err)
	}
	return d.postpone(m.name, err)
}

var errNotRouted = sourceOf("message").Bad("has no handler's name in its context: pass on the message itself, or set HandlerName")

func (m *idempotent) call(msg *message.Message) (once.Call, error) {
	value, err := m.key(msg)
	if err != nil {
		return once.Call{}, err
	}
	key, err := sourceOf("key").Key(m.name, value)
	if err != nil {
		return once.Call{}, err
	}
	c := once.Call{Name: m.name, Scope: m.handler, Key: strings.TrimPrefix(key, m.name+":")}
	if c.Scope == "" {
		if !isRouted(msg.Context()) {
			return once.Call{}, errNotRouted
		}
		c.Scope = message.HandlerNameFromCtx(msg.Context())
	}
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
