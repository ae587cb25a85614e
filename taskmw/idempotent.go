package taskmw

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/once"
)

// Idempotent returns a middleware that runs a task once. After a success, a task that
// is delivered again, or enqueued again under the same key, is done without a run. With
// TaskID as the key the middleware protects against duplicate deliveries of asynq. With
// a key from the payload or a header it also protects against producers that enqueue
// twice. once.Retain sets the time for which a success is remembered. once.AtMostOnce
// prevents another run after a run that died midway.
//
// A failed task runs again when asynq tries again. In the handler,
// once.AttemptFromContext returns the number of the attempt. With once.AtMostOnce, a
// failed run counts as a run that died midway if the handler's progress is unknown. The
// progress is unknown if the handler's context is done, or if the error matches
// context.Canceled, context.DeadlineExceeded or once.ErrIndeterminate. After other
// errors the task runs again. A handler can call once.NotFinal and return nil. This
// task is then done, and a later task under its key runs. While the task runs elsewhere
// the key is busy, see Busy. A task is archived if its type or payload, or its
// Fingerprint, differs from that of the first task under its key.
//
// The handler runs under the context of a lease. That context is derived from the
// task's own context, and is canceled when the lease is lost. The handler's result
// counts even if its success could not be stored. The task is then done, but a later
// task under its key may run. Like the lock of Lock, the run is held until the handler
// returns.
//
// A result that the handler writes by WriteResult is stored with the run, and is the
// result of later tasks too.
//
// After Commit the database decides. If the transaction was committed, the task is
// done, whatever the handler returns. If the transaction was rolled back, the task is
// tried again.
//
// A refusal by an inner Lock does not count as an attempt. There are two exceptions: an
// earlier try of a middleware in between that has reached the handler, and a call of
// once.AttemptFromContext between the two middlewares. The Lock refuses a task if its
// key is busy, bad or missing, or if the store is unavailable. Mount Idempotent inside a
// Lock if duplicates are rare. With an outer Idempotent, a task that finds the lock busy
// costs two more calls to the store.
//
// Idempotent panics if o or key is nil, or if name is not of the form [A-Za-z0-9._-]+
// or has more than 64 bytes. It also panics for an option that is nil or for Lock only.
// The middleware is safe for concurrent use, and can be mounted where a Lock can.
func Idempotent(o *once.Once, name string, key KeyFunc, opts ...Option) asynq.MiddlewareFunc {
	if o == nil {
		panic("taskmw: Idempotent: the Once is nil")
	}
	g := configure("Idempotent", name, key, opts)
	if len(g.acquire)+len(g.also) > 0 {
		panic("taskmw: Idempotent: Acquire and Also are for Lock; once.New has the options for runs")
	}
	if g.open {
		panic("taskmw: Idempotent: FailOpen is for Lock")
	}
	l, acquire := adapter.Terms(o)
	m := &idempotent{conflict: conflict{config: &g, locker: l}, once: o, key: key}
	m.terms = termsOf("Idempotent", l, append([]core.AcquireOption{core.Wait(unasked)}, acquire...))
	m.acquire = nil // the Once has these options
	return middleware(m.process)
}

type idempotent struct {
	conflict
	terms
	once *once.Once
	key  KeyFunc
}

func (m *idempotent) process(ctx context.Context, t *asynq.Task, next asynq.Handler) error {
	call, err := m.call(ctx, t)
	if err != nil {
		return m.keyFailure(err)
	}
	d := deliveryOf(ctx)
	d.enter(&m.conflict, true, call.Key)
	defer d.end()
	ran, committed, answer := false, false, error(nil)
	outer := ctx
	out, err := m.once.With(m.options(m.busy, d)...).Do(ctx, call, func(ctx context.Context) (once.Answer, error) {
		ran = true
		d.begin()
		var n *notes
		n, answer = try(ctx, t, next, false)
		committed = adapter.Committed(ctx)
		if !adapter.IsFinal(ctx) {
			once.NotFinal(outer) // an outer Idempotent has the same result
		}
		if err := n.outcome(ctx, answer); err != nil {
			return once.Answer{}, err
		}
		return n.answer(), nil
	})
	d.leave(err == nil)
	switch {
	case ran && committed && (err == nil || answer == nil || errors.Is(err, core.ErrUnavailable)):
		return err // the database has decided
	case ran:
		// The handler's result counts, stored or not.
		return answer
	case err == nil:
		if err := replay(ctx, t, out.Value); err != nil {
			return notRun(err) // the task is tried again
		}
		return nil
	case errors.Is(err, once.ErrUnreplayable):
		return nil
	case errors.Is(err, once.ErrInProgress):
		var busy *core.BusyError
		if errors.As(err, &busy) {
			return m.end(ctx, d, busy)
		}
	case errors.Is(err, once.ErrMismatch), errors.Is(err, once.ErrIndeterminate):
		return &failure{err.Error(), []error{err, asynq.SkipRetry}}
	}
	return notRun(err)
}

// outcome returns err, the error of the inner handlers, marked for package once. If the
// middlewares of this package have refused each try, there was no run, unless code in
// between has read the attempt. Otherwise the last try that reached the handler decides.
// If its progress is unknown, the outcome is unknown too.
func (n *notes) outcome(ctx context.Context, err error) error {
	ran, unclear := n.tries()
	switch {
	case err == nil:
		return nil
	case !ran && !adapter.AttemptAsked(ctx):
		return once.Withdraw(err)
	case unclear:
		return fmt.Errorf("%w: %w", once.ErrIndeterminate, err)
	}
	return err
}

// isUnclear reports whether the progress of a handler is unknown. err is the error that
// the handler returned under ctx.
func isUnclear(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || errors.Is(err, once.ErrIndeterminate) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}

func (m *idempotent) call(ctx context.Context, t *asynq.Task) (once.Call, error) {
	value, err := m.key(ctx, t)
	if err != nil {
		return once.Call{}, err
	}
	key, err := sourceOf("key").Key(m.name, value)
	if err != nil {
		return once.Call{}, err
	}
	c := once.Call{Name: m.name, Key: strings.TrimPrefix(key, m.name+":")}
	if m.fingerprint == nil {
		c.Fingerprint = digest([]byte(t.Type()), t.Payload())
		return c, nil
	}
	if value, err = m.fingerprint(ctx, t); err != nil {
		return once.Call{}, err
	}
	if value == "" {
		return once.Call{}, sourceOf("fingerprint").Bad("is empty")
	}
	c.Fingerprint = digest([]byte(value))
	return c, nil
}

// digest returns one digest of several values. Different values give different digests.
func digest(values ...[]byte) []byte {
	all := sha256.New()
	for _, v := range values {
		one := sha256.Sum256(v)
		all.Write(one[:])
	}
	return all.Sum(nil)
}
