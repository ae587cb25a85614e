package taskmw_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore/redistest"
	"github.com/lockkit/lockkit/taskmw"
)

// Three replicas that each run a scheduler and a server: each tick brings three
// tasks, of which one runs.
func TestScheduledJob(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]taskmw.Busy{"skip": taskmw.Skip, "drop": taskmw.Drop} {
		t.Run("a job that three replicas schedule runs once a tick, by "+name, func(t *testing.T) {
			t.Parallel()
			const every, keep = 2 * time.Second, time.Second
			r, s := newRig(t), &schedule{every: every, keep: keep, ticks: map[int]*outcome{}}
			for range 3 {
				lock := taskmw.Lock(r.locker(), "report", taskmw.Type(), taskmw.OnBusy(policy), taskmw.Acquire(core.KeepFor(keep)))
				job := lock(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
					s.note(time.Now(), false)
					return nil
				}))
				r.serve(taskmw.Configure(config()), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
					s.note(time.Now(), true)
					return job.ProcessTask(ctx, task)
				}))
			}
			// "@every" counts whole seconds from the start of the scheduler: they
			// have to start in the same one.
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second + 100*time.Millisecond)))
			s.start = time.Now().Truncate(time.Second)
			for range 3 {
				r.schedule("@every 2s", asynq.NewTask("report", nil))
			}
			eventually(t, "three ticks went as on a machine that is not busy", func() bool { return s.good() >= 3 })
			r.drained(soon)
			if n := r.archived(); n != 0 {
				t.Errorf("%d archived", n)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			for n, tick := range s.ticks {
				if tick.runs > 1 && !tick.late || tick.delivered > 3 && !tick.late {
					t.Errorf("tick %d: %+v", n, *tick)
				}
			}
		})
	}
}

// schedule is what became of the tasks of each tick.
type schedule struct {
	every, keep time.Duration
	start       time.Time

	mu    sync.Mutex
	ticks map[int]*outcome
}

// outcome is that of one tick.
type outcome struct {
	delivered, runs int
	late            bool // by so much that KeepFor does not suffice
}

func (s *schedule) note(at time.Time, delivered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int(at.Sub(s.start) / s.every)
	if s.ticks[n] == nil {
		s.ticks[n] = &outcome{}
	}
	tick := s.ticks[n]
	if delivered {
		tick.delivered++
		tick.late = tick.late || at.Sub(s.start)%s.every > s.keep*9/10
	} else {
		tick.runs++
	}
}

// good counts the ticks of which three tasks were delivered in time, and one ran.
func (s *schedule) good() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tick := range s.ticks {
		if tick.delivered == 3 && tick.runs == 1 && !tick.late {
			n++
		}
	}
	return n
}

// schedule runs a scheduler until the test ends.
func (r *rig) schedule(spec string, task *asynq.Task) {
	r.t.Helper()
	db := redistest.Client(r.t, r.server.Addr)
	s := asynq.NewSchedulerFromRedisClient(db, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
	if _, err := s.Register(spec, task, asynq.MaxRetry(1)); err != nil {
		r.t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Shutdown)
}
