package once

import (
	"cmp"
	"context"
	"fmt"

	"github.com/lockkit/lockkit/core"
)

// With returns a copy of o with additional acquire options after the options of o. The
// copy has the same records. Its Do fails with core.ErrInvalid if an option is not
// allowed.
func (o *Once) With(opts ...core.AcquireOption) *Once {
	with := *o
	with.acquire = append(o.acquire[:len(o.acquire):len(o.acquire)], opts...)
	return &with
}

// WithOptions returns a copy of o with additional options after the options of o. The
// copy has the same records. WithOptions fails like New.
func (o *Once) WithOptions(opts ...Option) (*Once, error) {
	with := o.With()
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("once: new: an option is nil: %w", core.ErrInvalid)
		}
		opt(&with.config)
	}
	if with.bad != nil {
		return nil, fmt.Errorf("once: new: %w: %w", with.bad, core.ErrInvalid)
	}
	if _, err := engine.CheckRun(with.locker, with.acquire...); err != nil {
		return nil, fmt.Errorf("once: new: %w", err)
	}
	return with, nil
}

// withLabel implements adapter.WithLabel.
func (o *Once) withLabel(label string) *Once {
	with := *o
	with.label = label
	return &with
}

// labelOf returns the name of c in messages and events.
func (o *Once) labelOf(c *Call) string { return cmp.Or(o.label, c.Name) }

// attemptAsked implements adapter.AttemptAsked.
func attemptAsked(ctx context.Context) bool {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	return ok && a.asked.Load()
}

// stillFinal implements adapter.IsFinal.
func stillFinal(ctx context.Context) bool {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	return !ok || a.answer.Load() != isNotFinal
}

// committed implements adapter.Committed.
func committed(ctx context.Context) bool {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	return ok && a.answer.Load() == isCommitted
}

// terms implements adapter.Terms. It omits the first option, which is New's default.
func (o *Once) terms() (*core.Locker, []core.AcquireOption) {
	// A Once that New has not made has no options.
	return o.locker, o.acquire[min(1, len(o.acquire)):len(o.acquire):len(o.acquire)]
}
