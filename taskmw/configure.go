package taskmw

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"
)

// defaultTick is how often an asynq server takes up tasks that were rescheduled,
// if nothing is said.
const defaultTick = 5 * time.Second

// configuredKey is in the context of each task of a server of Configure.
type configuredKey struct{}

// Configure returns cfg for a server on which busy tasks are no failures: they
// burn no retry, are delivered again after a tick or so, and the ErrorHandler is
// not told of them. Everything else is as cfg says, by its own IsFailure,
// RetryDelayFunc and ErrorHandler, or asynq's defaults. It marks the tasks'
// contexts, by BaseContext.
//
// It does not change what cfg refers to. Fields of the result that it has set
// are not to be replaced; set them before.
func Configure(cfg asynq.Config) asynq.Config {
	cfg.BaseContext = mark(cfg.BaseContext)
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
	tick := cfg.DelayedTaskCheckInterval
	if tick <= 0 {
		tick = defaultTick
	}
	delay := cfg.RetryDelayFunc
	if delay == nil {
		delay = asynq.DefaultRetryDelayFunc
	}
	cfg.RetryDelayFunc = func(n int, err error, t *asynq.Task) time.Duration {
		if c, ok := errors.AsType[*contention](err); ok {
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
func mark(base func() context.Context) func() context.Context {
	if base == nil {
		ctx := context.WithValue(context.Background(), configuredKey{}, true)
		return func() context.Context { return ctx }
	}
	return func() context.Context { return context.WithValue(base(), configuredKey{}, true) }
}

// pause is when a busy task is to be delivered again: after about a tick, so
// that not all come at once, and a tick after the holder's lease has run out at
// the latest. It does not grow: asynq cannot tell how often a task was busy.
func pause(tick, after time.Duration) time.Duration {
	return min(tick/2+rand.N(tick), after+tick)
}
