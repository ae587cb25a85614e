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
	late bool        // KeepFor may not have been long enough, or a tick may have been missed
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
		if now.Sub(j.start)%j.every > j.slack() {
			j.late = true
		}
		j.mu.Unlock()
		return next.ProcessTask(ctx, t)
	})
}

// slack returns the delay up to which a task counts for its tick.
func (j *job) slack() time.Duration { return j.every * 2 / 5 }

// watch records that the machine stood still for longer than a task may be late, until
// ctx is done.
func (j *job) watch(ctx context.Context) {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for last := time.Now(); ; last = time.Now() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if time.Since(last) > j.slack() {
			j.mu.Lock()
			j.late = true
			j.mu.Unlock()
		}
	}
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
