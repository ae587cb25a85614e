package main

import (
	"context"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

// job is the scheduled one. It counts its runs.
type job struct {
	every time.Duration
	start time.Time // of the schedulers: tick n is n times every later

	mu   sync.Mutex
	ran  map[int]int // how often, by tick
	late bool        // a task came so late that KeepFor may not have sufficed
}

// ProcessTask is the job itself.
func (j *job) ProcessTask(context.Context, *asynq.Task) error {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ran[int(now.Sub(j.start)/j.every)]++
	return nil
}

// delivered looks at the clock before a task goes to next.
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

// ticks tells how often the job ran in each of the first n ticks.
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
