package main

import (
	"context"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

// job is the scheduled job. It counts its runs.
type job struct {
	every time.Duration
	start time.Time // start of the schedulers: tick n is at start plus n times every

	mu   sync.Mutex
	ran  map[int]int // number of runs, by tick
	late bool        // a task was so late that KeepFor may not have been long enough
}

// ProcessTask counts a run.
func (j *job) ProcessTask(context.Context, *asynq.Task) error {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ran[int(now.Sub(j.start)/j.every)]++
	return nil
}

// delivered returns a handler that records whether a task is late, and then calls next.
func (j *job) delivered(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		now := time.Now()
		j.mu.Lock()
		if now.Sub(j.start)%j.every > j.every*2/5 {
			j.late = true
		}
		j.mu.Unlock()
		return next.ProcessTask(ctx, t)
	})
}

// ticks counts the ticks from 1 to n in which the job ran once, more often, or never.
func (j *job) ticks(n int) (once, more, never int, late bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for tick := 1; tick <= n; tick++ {
		switch ran := j.ran[tick]; {
		case ran == 1:
			once++
		case ran > 1:
			more++
		default:
			never++
		}
	}
	return once, more, never, j.late
}
