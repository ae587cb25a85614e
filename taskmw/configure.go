package taskmw

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/hibiken/asynq"
)

const (
	// quickTick is how often a server of Configure looks for tasks if nothing is
	// said. With asynq's own 5 seconds and 1 second, a key would be unused most of
	// the time between two lots of rescheduled tasks.
	quickTick = 100 * time.Millisecond
	// defaultTick is for a delivery that the server is not known of.
	defaultTick = 5 * time.Second
)

// configuredKey is in the context of each task of a server of Configure.
type configuredKey struct{}

// Configure returns cfg for a server on which busy tasks are no failures: they
// burn no retry, are delivered again later, and the ErrorHandler is not told of
// them. It marks the tasks' contexts, by BaseContext.
//
// A server looks for rescheduled tasks once a tick, DelayedTaskCheckInterval, and
// for any tasks every TaskCheckInterval while there are none. Configure sets both
// to 100 ms where cfg does not say; asynq's defaults are 5 s and 1 s. An idle
// server then sends Redis about thirty commands a second for each queue. A key
// whose tasks take less than a tick is not in use all the time.
//
// Everything else is as cfg says, by its own IsFailure, RetryDelayFunc and
// ErrorHandler, or asynq's defaults.
//
// It does not change what cfg refers to. Fields of the result that it has set
// are not to be replaced; set them before.
func Configure(cfg asynq.Config) asynq.Config {
	tick := cfg.DelayedTaskCheckInterval
	if tick <= 0 {
		tick, cfg.DelayedTaskCheckInterval = defaultTick, quickTick
	}
	if cfg.TaskCheckInterval <= 0 {
		cfg.TaskCheckInterval = quickTick
	}
	slots := cfg.Concurrency
	if slots < 1 {
		slots = runtime.NumCPU() // as asynq does
	}
	cfg.BaseContext = mark(cfg.BaseContext, newCrowds(cfg.DelayedTaskCheckInterval, slots))
	isFailure := cfg.IsFailure
	cfg.IsFailure = func(err error) bool {
		switch {
		case isContention(err):
			return false
		case isFailure != nil:
			return isFailure(err)
		}
		return err != nil
	}
	delay := cfg.RetryDelayFunc
	if delay == nil {
		delay = asynq.DefaultRetryDelayFunc
	}
	cfg.RetryDelayFunc = func(n int, err error, t *asynq.Task) time.Duration {
		var c *contention
		if errors.As(err, &c) {
			if c.crowded {
				return c.pause
			}
			return pause(tick, c.after)
		}
		return delay(n, err, t)
	}
	if handler := cfg.ErrorHandler; handler != nil {
		cfg.ErrorHandler = asynq.ErrorHandlerFunc(func(ctx context.Context, t *asynq.Task, err error) {
			if !isContention(err) {
				handler.HandleError(ctx, t, err)
			}
		})
	}
	return cfg
}

// mark makes contexts that show that the server was configured.
func mark(base func() context.Context, s *crowds) func() context.Context {
	if base == nil {
		ctx := context.WithValue(context.Background(), configuredKey{}, s)
		return func() context.Context { return ctx }
	}
	return func() context.Context { return context.WithValue(base(), configuredKey{}, s) }
}

// pause is when a busy task is to be delivered again: after about a tick, so
// that not all come at once, and a tick after the holder's lease has run out at
// the latest. It does not grow: asynq cannot tell how often a task was busy.
func pause(tick, after time.Duration) time.Duration {
	return min(tick/2+rand.N(tick), after+tick)
}
