// Package saga runs the steps of a saga once each, over crashes, and takes back those that
// were done if one fails for good.
package saga

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core/once"
)

// ErrRefused is the error of a step that failed for good, without an effect. After any other
// error the saga is run again.
var ErrRefused = errors.New("refused")

// Keep is how long it is known that a step was done or refused, counted from the step. A saga
// that is taken up after that begins anew, so it is longer than any saga stays open.
const Keep = 90 * 24 * time.Hour

// Step is a part of a saga.
type Step struct {
	Name string // 1 to 60 letters, digits, '.', '_' and '-'
	Do   func(ctx context.Context) error
	Undo func(ctx context.Context) error // of a step that was done; it may not be refused
}

// Run does the steps of the saga id in their order. If a step is refused, it takes the steps
// before it back, the last one first, and returns an error that matches ErrRefused. A saga
// that broke off is run again with the same id and steps: what was done or refused before is not
// done again for as long as Keep says. Two Runs of one saga do not overlap in a step.
func Run(ctx context.Context, runs *once.Once, id string, steps []Step) error {
	runs, err := runs.WithOptions(once.Retain(Keep))
	if err != nil {
		return err
	}
	for i, s := range steps {
		refused, err := step(ctx, runs, id, s.Name+".do", s.Do)
		if err != nil {
			return err
		}
		if !refused {
			continue
		}
		for _, s := range slices.Backward(steps[:i]) {
			if _, err := step(ctx, runs, id, s.Name+".undo", s.Undo); err != nil {
				return err
			}
		}
		return fmt.Errorf("saga: step %s: %w", s.Name, ErrRefused)
	}
	return nil
}

// step runs f once, and keeps whether it was refused.
func step(ctx context.Context, runs *once.Once, id, name string, f func(context.Context) error) (refused bool, err error) {
	out, err := runs.Do(ctx, once.Call{Name: name, Key: id}, func(ctx context.Context) (once.Answer, error) {
		switch err := f(ctx); {
		case errors.Is(err, ErrRefused):
			return once.Answer{Value: []byte("refused")}, nil
		default:
			return once.Answer{Value: []byte("done")}, err
		}
	})
	return string(out.Value) == "refused", err
}
