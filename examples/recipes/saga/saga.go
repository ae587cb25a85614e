// Package saga runs each step of a saga once, even after crashes. If a step fails for
// good, it undoes the steps before it.
package saga

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
)

// ErrRefused is returned by a step that failed for good and had no effect. After any
// other error, the caller runs the saga again.
var ErrRefused = errors.New("refused")

// Keep is the time for which a done or refused step is known. A saga that is resumed
// later begins again with its first step. So Keep has to exceed the time for which any
// saga stays open.
const Keep = 90 * 24 * time.Hour

// Step is a part of a saga.
type Step struct {
	Name string // 1 to 59 letters, digits, '.', '_' and '-'
	Do   func(ctx context.Context) error
	Undo func(ctx context.Context) error // undoes a done step; must not return ErrRefused
}

// Run runs the steps of a saga in their order. kind names the kind of the saga, and id
// is unique among the sagas of a kind. If a step is refused, Run undoes the steps
// before it in reverse order, and returns an error that matches ErrRefused. After a
// crash or another error, call Run again with the same kind, id and steps. Steps that
// were done or refused are not repeated for the time of Keep. Two Runs of one saga do
// not overlap in a step while the lease of the first run is valid.
//
// Run fails with core.ErrInvalid, and runs nothing, if kind is "" or two steps have the
// same name. The second step would count as done.
func Run(ctx context.Context, runs *once.Once, kind, id string, steps []Step) error {
	runs, err := runs.WithOptions(once.Retain(Keep))
	if err != nil {
		return err
	}
	if kind == "" {
		return fmt.Errorf("saga: the kind is empty: %w", core.ErrInvalid)
	}
	names := make(map[string]bool)
	for _, s := range steps {
		if names[s.Name] {
			return fmt.Errorf("saga: two steps have the name %q: %w", s.Name, core.ErrInvalid)
		}
		names[s.Name] = true
	}
	for i, s := range steps {
		refused, err := step(ctx, runs, kind, id, s.Name+".do", s.Do)
		if err != nil {
			return err
		}
		if !refused {
			continue
		}
		for _, s := range slices.Backward(steps[:i]) {
			if _, err := step(ctx, runs, kind, id, s.Name+".undo", s.Undo); err != nil {
				return err
			}
		}
		return fmt.Errorf("saga: step %s: %w", s.Name, ErrRefused)
	}
	return nil
}

// step runs f once, and stores whether f was refused.
func step(ctx context.Context, runs *once.Once, kind, id, name string, f func(context.Context) error) (refused bool, err error) {
	out, err := runs.Do(ctx, once.Call{Name: name, Scope: kind, Key: id}, func(ctx context.Context) (once.Answer, error) {
		switch err := f(ctx); {
		case errors.Is(err, ErrRefused):
			return once.Answer{Value: []byte("refused")}, nil
		default:
			return once.Answer{Value: []byte("done")}, err
		}
	})
	return string(out.Value) == "refused", err
}
