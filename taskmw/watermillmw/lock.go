package watermillmw

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
)

// Lock returns a middleware that runs messages under a lock. It locks core.Key(name,
// key), or core.Key(name, parts...) if Join made the key. The option Also adds further
// keys. Busy describes the treatment of a message whose key is busy.
//
// The handler runs under the lease's context, which msg.Context() returns. That context
// is derived from the message's own context, and is canceled when the lease is lost.
// The handler's result counts even if the lease was lost. The lock is released only
// when the handler has returned or panicked. So if a broker delivers the message again
// while its handler still runs, the second delivery waits. A handler that hangs keeps
// its key, unless Acquire(core.MaxHold(d)) sets a limit.
//
// Lock panics if l or key is nil, or if name is not of the form [A-Za-z0-9._-]+ or has
// more than 64 bytes. It also panics for an option that is nil or for Idempotent only,
// and for an acquire option that is not allowed or that the store's CheckClaim refuses.
// The middleware is safe for concurrent use. It can be passed to Router.AddMiddleware
// and to Handler.AddMiddleware.
func Lock(l *core.Locker, name string, key KeyFunc, opts ...Option) message.HandlerMiddleware {
	if l == nil {
		panic("watermillmw: Lock: the locker is nil")
	}
	g := configure("Lock", name, key, opts)
	if g.fingerprint != nil || g.handler != "" {
		panic("watermillmw: Lock: Fingerprint and HandlerName are for Idempotent")
	}
	m := &lock{config: g, locker: l, keys: append([]KeyFunc{key}, g.also...)}
	m.acquire = append([]core.AcquireOption{core.Wait(unasked), core.Name(name)}, g.acquire...)
	m.wait = waitOf("Lock", l, m.acquire)
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) { return m.process(msg, next) }
	}
}

type lock struct {
	*config
	locker *core.Locker
	keys   []KeyFunc
	wait   time.Duration // the value of core.Wait, or negative
}

func (m *lock) process(msg *message.Message, next message.HandlerFunc) ([]*message.Message, error) {
	keys, err := m.find(msg)
	if err != nil {
		return nil, m.keyFailure(err)
	}
	d := deliveryOf(msg, m.busy, m.wait)
	opts := append(m.acquire[:len(m.acquire):len(m.acquire)], core.Wait(d.wait))
	if len(keys) > 1 {
		opts = append(opts, core.Also(keys[1:]...))
	}
	lease, err := m.locker.Acquire(d.ctx, keys[0], opts...)
	if err != nil {
		if m.open {
			if open, ok := adapter.FailOpen(d.ctx, m.locker, m.name, err); ok {
				return m.run(d, open, func(bool) {}, next)
			}
		}
		if isFinal(err) {
			return nil, notRun(err)
		}
		return d.postpone(m.name, err)
	}
	// The outcome of the message does not depend on an error of the release. The Locker's
	// observer is notified of that error. The key of a message that did not run is not
	// kept, because Skip would ack the next delivery.
	release := func(ran bool) {
		if ran {
			_ = lease.Release(context.WithoutCancel(d.ctx))
		} else {
			_ = lease.Withdraw(context.WithoutCancel(d.ctx))
		}
	}
	if d.ctx.Err() != nil { // the broker has given up the message meanwhile
		release(false)
		return d.postpone(m.name, fmt.Errorf("watermillmw: lock %q: the context of the message is done: %w", m.name, context.Cause(d.ctx)))
	}
	return m.run(d, lease.Context(), release, next)
}

// run calls next under ctx, and then release, with whether a try has reached the handler.
// If an inner middleware has postponed the message, the message is nacked after the
// release.
func (m *lock) run(d *delivery, ctx context.Context, release func(ran bool), next message.HandlerFunc) ([]*message.Message, error) {
	t := newTries(d.msg)
	if d.outer != nil {
		t = d.outer.tries
	}
	before := t.recorded
	produced, err := func() ([]*message.Message, error) {
		defer func() { release(t.recorded > before) }()
		return under(ctx, d.msg, d.run(t), next)
	}()
	if t.postponed != nil && err == nil {
		return d.end(t.postponed)
	}
	return produced, err
}

func (m *lock) find(msg *message.Message) ([]string, error) {
	found := make([]string, len(m.keys))
	for i, f := range m.keys {
		value, err := f(msg)
		if err != nil {
			return nil, err
		}
		if found[i], err = sourceOf("key").Key(m.name, value); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// waitOf returns the value of core.Wait in opts. opts begin with core.Wait(unasked). If
// they contain no other core.Wait, the result is negative. It panics if opts are not
// allowed.
func waitOf(what string, l *core.Locker, opts []core.AcquireOption) time.Duration {
	wait, err := adapter.Check(l, opts...)
	if err != nil {
		panic(fmt.Sprintf("watermillmw: %s: %v", what, err))
	}
	if wait == unasked {
		return -1
	}
	return wait
}
