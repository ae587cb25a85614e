package once

import (
	"cmp"
	"context"
	"fmt"

	"github.com/lockkit/lockkit/core"
)

// With is o with further acquire options after its own, for some of the calls:
// the same records, claimed in another way. Do fails with core.ErrInvalid if
// they are not allowed.
func (o *Once) With(opts ...core.AcquireOption) *Once {
	with := *o
	with.acquire = append(o.acquire[:len(o.acquire):len(o.acquire)], opts...)
	return &with
}

// WithOptions is o with further options after its own, for some of the calls: the
// same records. It fails as New does.
func (o *Once) WithOptions(opts ...Option) (*Once, error) {
	with := o.With()
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("new once: an option is nil: %w", core.ErrInvalid)
		}
		opt(&with.config)
	}
	if with.bad != nil {
		return nil, fmt.Errorf("new once: %w: %w", with.bad, core.ErrInvalid)
	}
	if _, err := with.locker.CheckRun(with.acquire...); err != nil {
		return nil, fmt.Errorf("new once: %w", err)
	}
	return with, nil
}

// WithLabel is o with another name for its calls in messages and events, in
// place of Call.Name. Calls are the same as before, and so is what is kept of
// them. Do fails with core.ErrInvalid if label is not of the form
// [A-Za-z0-9._-]+. An empty one is none.
func (o *Once) WithLabel(label string) *Once {
	with := *o
	with.label = label
	return &with
}

// labelOf is the name of c in messages and events.
func (o *Once) labelOf(c *Call) string { return cmp.Or(o.label, c.Name) }

// AttemptAsked tells an adapter, which has the context of a run, whether
// AttemptFromContext was called under it. If so, something in the run may have
// gone by the number, and has to see another one next time: the adapter must not
// withdraw the run for what came after that.
func AttemptAsked(ctx context.Context) bool {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	return ok && a.asked.Load()
}

// IsFinal reports to an adapter, which has the context of a run, whether the answer
// counts as final: NotFinal has not been called under ctx. An adapter around whose
// run there is another one for the same answer passes the mark on, by NotFinal with
// the context around.
func IsFinal(ctx context.Context) bool {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	return !ok || a.answer.Load() != isNotFinal
}

// Terms tells an adapter how o claims its runs: with which Locker, and with which
// options.
func (o *Once) Terms() (*core.Locker, []core.AcquireOption) {
	return o.locker, o.acquire[:len(o.acquire):len(o.acquire)]
}
