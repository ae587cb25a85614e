// Package cron runs a job once for each scheduled time, on any number of replicas.
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

// Keep is the time for which a run is known. After it, a call for the same scheduled
// time runs the job again. So Keep has to exceed the longest delay of a replica. Keep
// suits jobs with a period of up to a week.
const Keep = 14 * 24 * time.Hour

// Run runs job for the scheduled time due. It returns nil if this replica or another
// replica has done the job. While another replica runs the job, Run returns an error
// that matches once.ErrInProgress. That replica can die, so the caller has to call Run
// again, as Until does. due is a time of the schedule and not the reading of a clock:
// 03:00, not 03:00:00.017.
func Run(ctx context.Context, runs *once.Once, name string, due time.Time, job func(context.Context) error) error {
	runs, err := runs.WithOptions(once.Retain(Keep))
	if err != nil {
		return err
	}
	call := once.Call{Name: name, Key: due.UTC().Format(time.RFC3339)}
	_, err = runs.Do(ctx, call, func(ctx context.Context) (once.Answer, error) { return once.Answer{}, job(ctx) })
	return err
}

// Until calls Run until this replica or another replica has done the job. Between the
// calls it waits for a random time between half of pause and one and a half times
// pause. pause must be positive. Set the deadline of ctx to the next scheduled time.
// Before this deadline, any replica runs the job again if the job failed or its replica
// died. Until returns at once an error that matches once.ErrIndeterminate,
// core.ErrInvalid or core.ErrClosed.
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
