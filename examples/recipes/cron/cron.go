// Package cron runs a job once for each time that it is due, on however many replicas.
package cron

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core/once"
)

// Run runs job for the time at which it is due, unless another replica has or does. Each
// replica calls it, at that time or later; a replica that died in the job has it run again by
// the next call for the same time. The time is the one of the schedule, not that of a clock:
// 03:00, and not 03:00:00.017.
func Run(ctx context.Context, runs *once.Once, name string, due time.Time, job func(context.Context) error) error {
	call := once.Call{Name: name, Key: due.UTC().Format(time.RFC3339)}
	_, err := runs.Do(ctx, call, func(ctx context.Context) (once.Answer, error) { return once.Answer{}, job(ctx) })
	if errors.Is(err, once.ErrInProgress) {
		return nil // by another replica
	}
	return err
}
