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
// one a name (gocron.WithName): the key is core.Key("cron", name). Jobs without a name
// have that of their function, which two of them can share, as those of one closure do:
// they would exclude each other. So a name that looks like a function's is refused on
// each run, with core.ErrInvalid, and the job does not run: "main.report",
// "example.com/jobs.Report", "jobs.New.func1". The observer of l is notified of the
// first by core.Misused.
//
// keep is how long the key is kept from its acquire, as the package says; opts are
// those of each acquire. There is one attempt. A run that did not get the lock is
// skipped. gocron's monitors and event listeners get the reason: core.ErrBusy if
// another replica runs the job, or has run it.
//
// Locker panics if l is nil, keep is not positive, or l.Check fails with opts.
func Locker(l *core.Locker, keep time.Duration, opts ...core.AcquireOption) gocron.Locker {
	return newLocker(l, keep, opts)
}

// Once returns a wrapper for cron.WithChain and cron.NewChain: the wrapped jobs run at
// most once among all that have this name and store. The key is core.Key("cron", name);
// keep and opts are as for Locker, and Once panics as Locker does. A run that did not
// get the lock is skipped. logger logs it: at Info if another replica runs the job, or
// has run it, and as an error if the store did not answer. The loss of the lock while
// the job ran is an error too.
//
// Several jobs need several names, and so several Once: jobs of one exclude each other.
// When a second job is wrapped, by a chain of the whole cron.Cron for example, logger
// gets an error that matches core.ErrInvalid.
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

// The mistakes in the names of jobs. A name is not shown: it is a part of the key.
var (
	errUnnamed = fmt.Errorf("cronmw: the job has no name of its own, see gocron.WithName: %w", core.ErrInvalid)
	errShared  = fmt.Errorf("cronmw: a second job has this name, and they exclude each other: %w", core.ErrInvalid)
)

// functionName matches the names that gocron gives to jobs without one: those of
// functions of package main or of a path with a domain, closures, methods and their
// values.
var functionName = regexp.MustCompile(`^main\.|^[^/ ]+\.[^/ ]+/.*\.[^/]+$|\.func\d+(\.\d+|\.func\d+)*$|\.\(\*|-fm$|\[\.\.\.\]`)

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

// lock acquires the lock of the job of that name, if it is free.
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
