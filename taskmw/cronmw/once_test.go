package cronmw_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/taskmw/cronmw"
)

var _ gocron.Elector = (*leader.Elector)(nil)

const keep = 800 * time.Millisecond

// sim runs fn as a subtest in virtual time.
func sim(t *testing.T, name string, fn func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, fn)
	})
}

func newLocker(t *testing.T, store core.Store) *core.Locker {
	t.Helper()
	l, err := core.New(store)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// runs records the times at which the replicas began a job.
type runs struct {
	mu  sync.Mutex
	all []time.Time
	by  map[string]int
}

func (r *runs) note(replica int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, time.Now())
	if r.by == nil {
		r.by = make(map[string]int)
	}
	r.by[fmt.Sprint(replica)]++
}

// closest returns the shortest time between two runs, and the number of runs.
func (r *runs) closest() (time.Duration, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.all, time.Time.Compare)
	least := time.Hour
	for i := 1; i < len(r.all); i++ {
		least = min(least, r.all[i].Sub(r.all[i-1]))
	}
	return least, len(r.all)
}

// behind returns a wrapper that delays each run by d, as on a replica whose clock is
// behind.
func behind(d time.Duration) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			time.Sleep(d)
			job.Run()
		})
	}
}

type log struct {
	mu    sync.Mutex
	errs  []error
	infos int
}

func (l *log) Info(string, ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.infos++
}

func (l *log) Error(err error, _ string, _ ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

func TestOnce(t *testing.T) {
	t.Parallel()
	// minute runs a job with cron every second for a minute, on three replicas whose
	// clocks differ.
	minute := func(t *testing.T, keep, takes time.Duration) *runs {
		store, r := memstore.New(), &runs{}
		for replica := range 3 {
			c := cron.New(cron.WithSeconds(), cron.WithChain(
				behind(time.Duration(replica)*100*time.Millisecond),
				cronmw.Once(newLocker(t, store), "report", keep, cron.DiscardLogger)))
			if _, err := c.AddFunc("* * * * * *", func() {
				r.note(replica)
				time.Sleep(takes)
			}); err != nil {
				t.Fatal(err)
			}
			c.Start()
			t.Cleanup(func() { <-c.Stop().Done() })
		}
		time.Sleep(time.Minute)
		return r
	}
	sim(t, "three replicas", func(t *testing.T) {
		least, n := minute(t, keep, time.Millisecond).closest()
		if least < keep || n < 59 || n > 61 {
			t.Errorf("%d runs, the closest two %v apart", n, least)
		}
	})
	sim(t, "without a keep time", func(t *testing.T) {
		if _, n := minute(t, time.Millisecond, time.Millisecond).closest(); n < 170 {
			t.Errorf("%d runs: this shows nothing", n)
		}
	})
	sim(t, "job longer than its interval", func(t *testing.T) {
		if least, n := minute(t, keep, 2500*time.Millisecond).closest(); least < 2500*time.Millisecond || n < 15 || n > 21 {
			t.Errorf("%d runs, the closest two %v apart", n, least)
		}
	})
	sim(t, "skips and store errors are logged", func(t *testing.T) {
		store, logger, ran := &down{Store: memstore.New()}, &log{}, 0
		job := cronmw.Once(newLocker(t, store), "report", keep, logger)(cron.FuncJob(func() { ran++ }))
		job.Run()
		job.Run()
		if ran != 1 || logger.infos != 1 || len(logger.errs) != 0 {
			t.Errorf("%d runs; got %d infos and the errors %v", ran, logger.infos, logger.errs)
		}
		time.Sleep(keep)
		store.is.Store(true)
		job.Run()
		if ran != 1 || len(logger.errs) != 1 || !errors.Is(logger.errs[0], core.ErrUnavailable) {
			t.Errorf("%d runs; got the errors %v", ran, logger.errs)
		}
		store.is.Store(false)
		time.Sleep(time.Minute)
		job.Run()
		if ran != 2 {
			t.Errorf("%d runs", ran)
		}
	})
	sim(t, "lost lock logged before panic", func(t *testing.T) {
		store, logger := &down{Store: memstore.New()}, &log{}
		wrap := cronmw.Once(newLocker(t, store), "report", keep, logger)
		wrap(cron.FuncJob(func() {
			store.is.Store(true)
			time.Sleep(time.Minute)
			store.is.Store(false)
		})).Run()
		if len(logger.errs) != 1 || !errors.Is(logger.errs[0], core.ErrLost) {
			t.Errorf("got the errors %v", logger.errs)
		}
		time.Sleep(time.Minute)
		for range 2 {
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic is gone, or the lock was not released")
					}
				}()
				wrap(cron.FuncJob(func() { panic("at work") })).Run()
			}()
			time.Sleep(keep)
		}
	})
	sim(t, "bad arguments", func(t *testing.T) {
		l := newLocker(t, memstore.New())
		for what, make := range map[string]func(){
			"no locker": func() { cronmw.Locker(nil, keep) }, "no time": func() { cronmw.Locker(l, 0) },
			"a bad option": func() { cronmw.Locker(l, keep, core.TTL(1)) }, "no logger": func() { cronmw.Once(l, "x", keep, nil) },
			"too long": func() { cronmw.Once(l, "x", 1000*time.Hour, cron.DiscardLogger) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic", what)
					}
				}()
				make()
			}()
		}
	})
}

// down is a store whose claims and extensions fail with ErrUnavailable while is.Load()
// is true.
type down struct {
	*memstore.Store
	is atomic.Bool
}

func (s *down) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if s.is.Load() {
		return store.Grant{}, core.ErrUnavailable
	}
	return s.Store.Acquire(ctx, c)
}

func (s *down) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	if !s.is.Load() {
		return s.Store.Extend(ctx, claims)
	}
	answers := make([]store.Extension, len(claims))
	for i := range answers {
		answers[i].Err = core.ErrUnavailable
	}
	return answers
}

// scheduler starts a scheduler of gocron that runs note every second.
func scheduler(t *testing.T, note func(), opts ...gocron.SchedulerOption) {
	t.Helper()
	s, err := gocron.NewScheduler(opts...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(note), gocron.WithName("report")); err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
}

func TestLocker(t *testing.T) {
	t.Parallel()
	sim(t, "three replicas of gocron", func(t *testing.T) {
		store, r := memstore.New(), &runs{}
		for replica := range 3 {
			scheduler(t, func() { r.note(replica) }, gocron.WithDistributedLocker(cronmw.Locker(newLocker(t, store), keep)))
		}
		time.Sleep(time.Minute)
		if least, n := r.closest(); least < keep || n < 59 || n > 61 {
			t.Errorf("%d runs, the closest two %v apart", n, least)
		}
	})
}

// method has a method that the tests schedule as a job. gocron derives the name of the
// job from the method.
type method struct{ runs *atomic.Int32 }

func (m *method) run() { m.runs.Add(1) }

func named() {}

// misuses is an observer that counts core.Misused events about invalid arguments.
type misuses struct{ atomic.Int32 }

func (m *misuses) Observe(_ context.Context, e core.Event) {
	if e.Kind == core.Misused && errors.Is(e.Err, core.ErrInvalid) {
		m.Add(1)
	}
}

// refusing is a locker that counts runs refused with core.ErrInvalid.
type refusing struct {
	gocron.Locker
	atomic.Int32
}

func (r *refusing) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	lock, err := r.Locker.Lock(ctx, name)
	if errors.Is(err, core.ErrInvalid) {
		r.Add(1)
	}
	return lock, err
}

func TestLocker_JobsWithoutNames(t *testing.T) {
	t.Parallel()
	sim(t, "jobs of gocron", func(t *testing.T) {
		var misused misuses
		var ran atomic.Int32
		l, err := core.New(memstore.New(), core.WithObserver(&misused))
		if err != nil {
			t.Fatal(err)
		}
		refusals := &refusing{Locker: cronmw.Locker(l, keep)}
		s, err := gocron.NewScheduler(gocron.WithDistributedLocker(refusals))
		if err != nil {
			t.Fatal(err)
		}
		closure := func() func() { return func() { ran.Add(1) } }
		m := &method{&ran}
		for _, task := range []any{closure(), closure(), m.run, named} {
			if _, err := s.NewJob(gocron.DurationJob(time.Second), gocron.NewTask(task)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.NewJob(gocron.DurationJob(time.Second), gocron.NewTask(closure()), gocron.WithName("report.daily")); err != nil {
			t.Fatal(err)
		}
		s.Start()
		time.Sleep(1500 * time.Millisecond)
		if misused.Load() != 1 || refusals.Load() != 4 || ran.Load() != 1 {
			t.Errorf("got %d notifications, %d refusals and %d runs, want 1, 4 and 1", misused.Load(), refusals.Load(), ran.Load())
		}
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	for name, unnamed := range map[string]bool{
		"report": false, "report.daily": false, "reports/daily": false, "daily report at 5.30": false, "a/b.c": false, "func1": false,
		"main.report": true, "main.main.func1": true, "example.com/shop/jobs.Report": true, "jobs.New.func2.1": true, "jobs.(*Runner).Run": true,
		"jobs.Runner.Run-fm": true, "jobs.Sync[...]": true, "jobs.New.func1.func2": true,
		"shop/jobs.Start.func1.newJob.1": true,
	} {
		lock, err := cronmw.Locker(newLocker(t, memstore.New()), keep).Lock(t.Context(), name)
		if got := errors.Is(err, core.ErrInvalid); got != unnamed || (lock != nil) == unnamed {
			t.Errorf("%s: got %v, want it refused: %v", name, err, unnamed)
		}
	}
}

func TestOnce_SecondJob(t *testing.T) {
	t.Parallel()
	logged := &log{}
	c := cron.New(cron.WithChain(cronmw.Once(newLocker(t, memstore.New()), "report", keep, logged)))
	for i, want := range []int{0, 1, 1} {
		if _, err := c.AddFunc("@hourly", func() {}); err != nil {
			t.Fatal(err)
		}
		if len(logged.errs) != want || want > 0 && !errors.Is(logged.errs[0], core.ErrInvalid) {
			t.Errorf("job %d: got %v, want %d errors", i+1, logged.errs, want)
		}
	}
}

func TestElector(t *testing.T) {
	t.Parallel()
	sim(t, "jobs run on the leader", func(t *testing.T) {
		store, r := memstore.New(), &runs{}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		for replica := range 2 {
			e, err := leader.New(newLocker(t, store), "scheduler")
			if err != nil {
				t.Fatal(err)
			}
			under := t.Context()
			if replica == 0 {
				under = ctx
			}
			go func() { _ = e.Run(under, nil) }()
			synctest.Wait()
			scheduler(t, func() { r.note(replica) }, gocron.WithDistributedElector(e))
		}
		for replica := range 2 {
			time.Sleep(10500 * time.Millisecond)
			r.mu.Lock()
			if n := r.by[fmt.Sprint(replica)]; n < 9 || n > 11 || len(r.by) != replica+1 {
				t.Errorf("replica %d: runs %v", replica, r.by)
			}
			r.mu.Unlock()
			stop()
		}
	})
}
