package taskmw_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/taskmw"
)

// TestScheduledJob runs three replicas, each with a scheduler and a server. Each tick
// brings three tasks, of which one runs.
func TestScheduledJob(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]taskmw.Busy{"skip": taskmw.Skip, "drop": taskmw.Drop} {
		t.Run("three replicas "+name, func(t *testing.T) {
			t.Parallel()
			const every, keep, rounds = 2 * time.Second, time.Second, 5
			r, s := newRig(t), &schedule{every: every, keep: keep}
			for range 3 {
				lock := taskmw.Lock(r.locker(), "report", taskmw.Type(), taskmw.OnBusy(policy), taskmw.Acquire(core.KeepFor(keep)))
				r.serve(taskmw.Configure(config()), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
					delivered := s.deliver()
					return lock(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
						s.run(delivered)
						return nil
					})).ProcessTask(ctx, task)
				}))
			}
			// A scheduler that was late once stays late. So each round starts new
			// schedulers.
			for round := 0; s.good < 3; round++ {
				if round == rounds {
					t.Fatalf("started %d times, only %d ticks went as on a machine that is not busy", rounds, s.good)
				}
				// "@every" counts whole seconds from the start of a scheduler, so the
				// schedulers have to start in the same second.
				time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second + 100*time.Millisecond)))
				s.begin(time.Now().Truncate(time.Second))
				var stops []func()
				for range 3 {
					stops = append(stops, r.schedule("@every 2s", asynq.NewTask("report", nil)))
				}
				for end := time.Now().Add(10 * time.Second); s.good+s.goodTicks() < 3 && time.Now().Before(end); {
					time.Sleep(10 * time.Millisecond)
				}
				for _, stop := range stops {
					stop()
				}
				r.drained(soon)
				s.good += s.goodTicks()
			}
			if n := r.archived(); n != 0 {
				t.Errorf("%d archived", n)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			slices.SortFunc(s.runs, func(a, b runAt) int { return a.began.Compare(b.began) })
			for i := 1; i < len(s.runs); i++ {
				// The key of a run was granted between its delivery and its beginning.
				// A few milliseconds are allowed for Redis, which counts whole
				// milliseconds by its own clock.
				if apart := s.runs[i].began.Sub(s.runs[i-1].delivered); apart < keep-5*time.Millisecond {
					t.Errorf("two runs %v apart", apart)
				}
			}
		})
	}
}

// schedule records the tasks of each tick.
type schedule struct {
	every, keep time.Duration
	good        int // the ticks of earlier rounds

	mu    sync.Mutex
	start time.Time // the start of this round
	ticks map[int]*outcome
	runs  []runAt // of all rounds
}

// outcome has the result of one tick.
type outcome struct {
	delivered, runs int
	late            bool // too late for KeepFor
}

type runAt struct{ delivered, began time.Time }

func (s *schedule) begin(start time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start, s.ticks = start, map[int]*outcome{}
}

// tick returns the tick of that time. The caller holds s.mu.
func (s *schedule) tick(at time.Time) *outcome {
	n := int(at.Sub(s.start) / s.every)
	if s.ticks[n] == nil {
		s.ticks[n] = &outcome{}
	}
	return s.ticks[n]
}

func (s *schedule) deliver() (at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at = time.Now()
	tick := s.tick(at)
	tick.delivered++
	tick.late = tick.late || at.Sub(s.start)%s.every > s.keep*9/10
	return at
}

func (s *schedule) run(delivered time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Now()
	s.tick(at).runs++
	s.runs = append(s.runs, runAt{delivered, at})
}

// goodTicks counts the ticks in which three tasks were delivered in time and one ran.
func (s *schedule) goodTicks() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tick := range s.ticks {
		if tick.delivered == 3 && tick.runs == 1 && !tick.late {
			n++
		}
	}
	return n
}

// schedule runs a scheduler until the test ends or stop is called.
func (r *rig) schedule(spec string, task *asynq.Task) (stop func()) {
	r.t.Helper()
	db := testclient.Redis(r.t, r.server.Addr)
	s := asynq.NewSchedulerFromRedisClient(db, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
	if _, err := s.Register(spec, task, asynq.MaxRetry(1)); err != nil {
		r.t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		r.t.Fatal(err)
	}
	stop = sync.OnceFunc(s.Shutdown)
	r.t.Cleanup(stop)
	return stop
}
