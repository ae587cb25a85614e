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
	// quickTick is the default interval at which a server of Configure looks for tasks.
	// asynq's own defaults are 5 seconds and 1 second. With these defaults a key would
	// be unused for most of the time between two batches of rescheduled tasks.
	quickTick = 100 * time.Millisecond
	// defaultTick is asynq's own default tick. If cfg sets no tick, the pause of a busy
	// task without a crowd is computed from defaultTick.
	defaultTick = 5 * time.Second
)

// configuredKey is the key in the context of each task of a server of Configure.
type configuredKey struct{}

// Configure returns cfg, changed so that the server does not count busy tasks as
// failures. Busy tasks use up no retry and are delivered again later, without a call of
// the ErrorHandler. Configure marks the tasks' contexts, by BaseContext.
//
// A server looks for rescheduled tasks once a tick, DelayedTaskCheckInterval. While its
// queues are empty, it looks for other tasks every TaskCheckInterval. Configure sets
// each of these intervals to 100 ms if cfg does not set it. asynq's defaults are 5
// seconds and 1 second. An idle server then sends Redis about thirty commands a second
// for each queue. If the tasks of a busy key take less than a tick, the key is free for
// a part of each tick.
//
// For all other tasks cfg's own IsFailure, RetryDelayFunc and ErrorHandler decide, or
// asynq's defaults.
//
// Configure does not change the values to which cfg refers. Set the fields of cfg
// before Configure, and do not replace them in the result.
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
		slots = runtime.NumCPU() // the same default as asynq's
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

// mark returns a BaseContext whose contexts have s, which shows that the server was
// configured.
func mark(base func() context.Context, s *crowds) func() context.Context {
	if base == nil {
		ctx := context.WithValue(context.Background(), configuredKey{}, s)
		return func() context.Context { return ctx }
	}
	return func() context.Context { return context.WithValue(base(), configuredKey{}, s) }
}

// pause returns the time until a busy task is delivered again. The pause is chosen at
// random between 0.5 and 1.5 ticks, so that tasks do not come together. after is the
// time until the holder's lease expires. The pause exceeds this time by at most a tick.
// The pause does not grow, because asynq does not report how often a task was busy.
func pause(tick, after time.Duration) time.Duration {
	return min(tick/2+rand.N(tick), after+tick)
}
