// Package cronmw runs each job once if several replicas of a service schedule the same
// jobs, with go-co-op/gocron or with robfig/cron.
//
//	locker := cronmw.Locker(locks, 30*time.Second)
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
//	wrapper := cronmw.Once(locks, "reports", 30*time.Second, cron.DefaultLogger)
//	c := cron.New(cron.WithChain(wrapper))
//
// Each job needs a separate name, because jobs of one name exclude each other. In
// gocron set the name by gocron.WithName. Without WithName the job has the name of a
// function. Locker refuses the runs of a job whose name looks like a function's name.
// In cron use a separate Once for each job. A chain of the whole cron.Cron, as above,
// is for a single job.
//
// Suppose that a replica released its lock at the end of its job. A replica whose clock
// is a little behind would then run the job again. So the lock is kept for a fixed time
// after the acquire, even if the job ends earlier. This time has to be longer than the
// difference between the times at which the replicas begin the job. It has to be
// shorter than the interval minus that difference. If all replicas begin at the same
// times of day, as with cron expressions, use half of the interval. If each replica
// counts the interval from its own start, use nearly the whole interval.
//
// A job that takes longer than its interval keeps its lock. All replicas then skip the
// runs in between. While the store is unavailable, no replica runs the job. A job is
// not notified of the loss of its lock. So work that must not be done twice needs a
// fencing token, or package once.
//
// The alternative is one replica that runs all jobs: leader.Elector is gocron's
// Elector.
//
//	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//	go elector.Run(ctx, nil)
package cronmw
