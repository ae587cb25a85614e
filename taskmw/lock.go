package taskmw

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
)

// Lock returns a middleware that runs tasks under a lock. It locks core.Key(name, key),
// or core.Key(name, parts...) if Join made the key. The option Also adds further keys.
// Busy has the policies for a task whose key is busy. The policies Reschedule and Wait
// need a server configured by Configure.
//
// The handler runs under the lease's context. That context is derived from the task's
// own context, and is canceled when the lease is lost. The handler's result counts even
// if the lease is lost. The lock is released when the handler has returned or panicked,
// and not before. After a time-out, asynq delivers a task again during the run of its
// old handler. The new delivery finds the key busy until the old handler has returned.
// If the task has a deadline, a handler that hangs does not hold the key forever. The
// lease then has a MaxHold: the time until the deadline plus one TTL, see Acquire.
//
// Lock panics if l or key is nil, or if name is not of the form [A-Za-z0-9._-]+ or has
// more than 64 bytes. It also panics for an option that is nil or for Idempotent only,
// and for an acquire option that is not allowed or that the store's CheckClaim refuses.
// The middleware is safe for concurrent use. It can be mounted on a mux, on a mux
// inside another mux, or around one handler: Lock(…)(handler). A task without a handler
// in the mux passes without a lock, unless a middleware of another package is mounted
// inside the Lock.
func Lock(l *core.Locker, name string, key KeyFunc, opts ...Option) asynq.MiddlewareFunc {
	if l == nil {
		panic("taskmw: Lock: the locker is nil")
	}
	g := configure("Lock", name, key, opts)
	if g.fingerprint != nil {
		panic("taskmw: Lock: Fingerprint is for Idempotent")
	}
	m := &lock{conflict: conflict{config: &g, locker: l}, keys: append([]KeyFunc{key}, g.also...)}
	m.terms = termsOf("Lock", l, append([]core.AcquireOption{core.Wait(unasked), core.Name(name)}, g.acquire...))
	return middleware(m.process)
}

type lock struct {
	conflict
	terms
	keys []KeyFunc
}

func (m *lock) process(ctx context.Context, t *asynq.Task, next asynq.Handler) error {
	keys, err := m.find(ctx, t)
	if err != nil {
		return m.keyFailure(err)
	}
	d := deliveryOf(ctx)
	d.enter(&m.conflict, false, keys...)
	defer d.end()
	opts := m.options(m.busy, d)
	if len(keys) > 1 {
		opts = append(opts, core.Also(keys[1:]...))
	}
	lease, err := m.locker.Acquire(ctx, keys[0], opts...)
	if err != nil {
		d.leave(false)
		if m.open {
			if open, ok := adapter.FailOpen(ctx, m.locker, m.name, err); ok {
				_, err := try(open, t, next, true)
				return err
			}
		}
		var busy *core.BusyError
		if errors.As(err, &busy) {
			return m.end(ctx, d, busy)
		}
		return notRun(err)
	}
	d.begin()
	// The handler's result does not depend on the error of the release. The Locker's
	// observer is notified of that error.
	ran := true
	defer func() {
		if ctx := context.WithoutCancel(ctx); ran {
			_ = lease.Release(ctx)
		} else { // not kept, because Skip would take the task's next delivery for done
			_ = lease.Withdraw(ctx)
		}
	}()
	if ctx.Err() != nil { // the server has meanwhile abandoned the task
		ran = false
		return notRun(context.Cause(ctx))
	}
	n, err := try(lease.Context(), t, next, true)
	ran, _ = n.tries()
	return err
}

func (m *lock) find(ctx context.Context, t *asynq.Task) ([]string, error) {
	found := make([]string, len(m.keys))
	for i, f := range m.keys {
		value, err := f(ctx, t)
		if err != nil {
			return nil, err
		}
		if found[i], err = sourceOf("key").Key(m.name, value); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// unasked is a value of core.Wait that no caller passes. It means that no wait was set.
const unasked = forever - 1

// terms are the settings with which a middleware acquires.
type terms struct {
	acquire []core.AcquireOption
	wait    time.Duration // the time of core.Wait, or negative without it
	ttl     time.Duration
	bounded bool // there is a MaxHold
}

// termsOf returns the terms of the options. It panics if an option is not allowed.
func termsOf(what string, l *core.Locker, opts []core.AcquireOption) terms {
	wait, err := adapter.Check(l, opts...)
	if err != nil {
		panic(fmt.Sprintf("taskmw: %s: %v", what, err))
	}
	if wait == unasked {
		wait = -1
	}
	ttl, maxHold, _ := adapter.Limits(l, opts...) // it fails only if Check fails
	return terms{opts[:len(opts):len(opts)], wait, ttl, maxHold > 0}
}

// options returns the options of one delivery.
func (m *terms) options(b Busy, d *delivery) []core.AcquireOption {
	opts := make([]core.AcquireOption, 0, len(m.acquire)+3)
	opts = append(append(opts, m.acquire...), core.Wait(b.patience(d, m.wait)))
	if !m.bounded && d.left < forever {
		opts = append(opts, core.MaxHold(max(d.left, 0)+m.ttl))
	}
	return opts
}

// middleware makes process run each task, or refuse it. A mux calls the result again
// for each task, so the result has no state.
func middleware(process func(ctx context.Context, t *asynq.Task, next asynq.Handler) error) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		if isNotFound(next) {
			return next
		}
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error { return process(ctx, t, next) })
	}
}

// isNotFound reports whether h is the handler that a mux calls for tasks without a
// handler. A lock around this handler would archive tasks without the key, such as
// tasks of a newer program.
func isNotFound(h asynq.Handler) bool {
	f, ok := h.(asynq.HandlerFunc)
	return ok && reflect.ValueOf(f).Pointer() == reflect.ValueOf(asynq.NotFound).Pointer()
}
