// Package cron runs a job once for each time that it is due, on however many replicas.
package cron

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
)

// Keep is how long a run is known. After it, a call for the same time runs the job again. It is
// longer than any replica calls late, here for jobs of up to a week's period.
const Keep = 14 * 24 * time.Hour

// Run runs job for the time at which it is due. It returns nil if the job is done, by this
// replica or another one, and an error that matches once.ErrInProgress while another replica
// runs it. That replica can die, so the caller asks again: see Until. The time is the one of the
// schedule, not that of a clock: 03:00, and not 03:00:00.017.
func Run(ctx context.Context, runs *once.Once, name string, due time.Time, job func(context.Context) error) error {
	runs, err := runs.WithOptions(once.Retain(Keep))
	if err != nil {
		return err
	}
	call := once.Call{Name: name, Key: due.UTC().Format(time.RFC3339)}
	_, err = runs.Do(ctx, call, func(ctx context.Context) (once.Answer, error) { return once.Answer{}, job(ctx) })
	return err
}

// Until calls Run until the job is done, by this replica or another one, with pauses of about
// pause, which is more than 0. ctx has the time at which the job is due next as its deadline. Until
// then a job that failed, or whose replica died, is run again by any replica. Until returns at
// once with an error that another call cannot mend, as once.ErrIndeterminate is.
func Until(ctx context.Context, runs *once.Once, name string, due time.Time, pause time.Duration, job func(context.Context) error) error {
	for {
		err := Run(ctx, runs, name, due, job)
		if err == nil || errors.Is(err, once.ErrIndeterminate) || errors.Is(err, core.ErrInvalid) || errors.Is(err, core.ErrClosed) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cron: %s is not done: %w: %w", name, context.Cause(ctx), err)
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}
