package cronmw

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
)

// Locker returns a locker for gocron.WithDistributedLocker and
// gocron.WithDistributedJobLocker. It locks a job of gocron by its name, so give each
// job a name (gocron.WithName). The key is core.Key("cron", name). gocron gives a job
// without a name the name of its function. Two jobs whose functions come from the same
// closure then have the same name, and would exclude each other. So a run is refused
// with core.ErrInvalid if the job's name looks like the name of a function:
// "main.report", "example.com/jobs.Report", "jobs.New.func1". The first refusal
// notifies the observer of l of core.Misused.
//
// keep is the minimum time, counted from the acquire, for which the key is held; see
// the package documentation. opts are the options of each acquire, which makes one
// attempt. A run that does not get the lock is skipped. gocron's monitors and event
// listeners get the reason: core.ErrBusy if another replica runs the job, or has run
// it.
//
// Locker panics if l is nil or keep is not positive. It also panics for an option of
// opts that is not allowed or not supported by the store of l.
func Locker(l *core.Locker, keep time.Duration, opts ...core.AcquireOption) gocron.Locker {
	return newLocker(l, keep, opts)
}

// Once returns a wrapper for cron.WithChain and cron.NewChain. Each scheduled run of a
// wrapped job happens at most once among all jobs with this name and store. The key is
// core.Key("cron", name). keep and opts have the same meaning as in Locker. Once panics
// like Locker, and also if logger is nil. A run that does not get the lock is skipped,
// and logger logs the skip. The level is Info if another replica runs the job or has
// run it. The level is Error if the acquire failed for another reason, such as an
// unavailable store. logger also gets an error if the lock was lost while the job ran.
//
// Each job needs a separate name, and so a separate Once, because the jobs of one Once
// exclude each other. When a second job is wrapped, for example by a chain of the whole
// cron.Cron, logger gets an error that matches core.ErrInvalid.
func Once(l *core.Locker, name string, keep time.Duration, logger cron.Logger, opts ...core.AcquireOption) cron.JobWrapper {
	locks := newLocker(l, keep, opts)
	if logger == nil {
		panic("cronmw: logger is nil")
	}
	var jobs atomic.Int32
	return func(job cron.Job) cron.Job {
		if jobs.Add(1) == 2 {
			logger.Error(errShared, "wrap", "job", name)
		}
		return cron.FuncJob(func() {
			lock, err := locks.lock(context.Background(), name)
			switch {
			case errors.Is(err, core.ErrBusy):
				logger.Info("skip", "job", name)
				return
			case err != nil:
				logger.Error(err, "skip", "job", name)
				return
			}
			defer func() {
				if err := lock.Unlock(context.Background()); err != nil {
					logger.Error(err, "unlock", "job", name)
				}
			}()
			job.Run()
		})
	}
}

// These errors report bad names of jobs. They do not contain the name, because the name
// is a part of the key.
var (
	errUnnamed = fmt.Errorf("cronmw: the job has no name of its own, see gocron.WithName: %w", core.ErrInvalid)
	errShared  = fmt.Errorf("cronmw: a second job has this name, and they exclude each other: %w", core.ErrInvalid)
)

// functionName matches the names that gocron gives to jobs without a name: functions of
// package main or of a path with a domain, closures, methods and method values.
var functionName = regexp.MustCompile(`^main\.|^[^/ ]+\.[^/ ]+/.*\.[^/]+$|\.func\d+(\.\w+)*$|\.\(\*|-fm$|\[\.\.\.\]`)

type locker struct {
	locks  *core.Locker
	opts   []core.AcquireOption
	misuse *sync.Once
}

func newLocker(l *core.Locker, keep time.Duration, opts []core.AcquireOption) locker {
	if l == nil {
		panic("cronmw: locker is nil")
	}
	if keep <= 0 {
		panic("cronmw: keep is not positive")
	}
	opts = append(opts[:len(opts):len(opts)], core.KeepFor(keep))
	if _, err := adapter.Check(l, opts...); err != nil {
		panic("cronmw: " + err.Error())
	}
	return locker{l, opts, new(sync.Once)}
}

// Lock implements gocron.Locker.
func (l locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	if functionName.MatchString(name) {
		l.misuse.Do(func() { adapter.Observe(ctx, l.locks, core.Event{Kind: core.Misused, Name: "cron", Err: errUnnamed}) })
		return nil, errUnnamed
	}
	return l.lock(ctx, name)
}

// lock acquires the lock of the job with this name, if the lock is free.
func (l locker) lock(ctx context.Context, name string) (gocron.Lock, error) {
	lease, err := l.locks.TryAcquire(ctx, core.Key("cron", name), l.opts...)
	if err != nil {
		return nil, err
	}
	return lock{lease}, nil
}

type lock struct{ lease *core.Lease }

// Unlock releases the lock. It is safe to call with a canceled ctx.
func (l lock) Unlock(ctx context.Context) error { return l.lease.Release(ctx) }
