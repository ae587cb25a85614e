// Package cronmw runs each job once if several replicas of a service schedule the same
// jobs, with go-co-op/gocron or with robfig/cron.
//
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(cronmw.Locker(locks, 30*time.Second)))
//	c := cron.New(cron.WithChain(cronmw.Once(locks, "reports", 30*time.Second, cron.DefaultLogger)))
//
// Each job needs a separate name, because jobs of one name exclude each other. In
// gocron set the name by gocron.WithName, without which Locker refuses the job. In cron use a
// separate Once for each job; a chain of the whole cron.Cron, as above, is for a single job.
//
// If a replica released its lock as soon as its job is done, a replica whose clock is a little
// behind would run the job again. So the lock is kept for a fixed time after the acquire, even
// if the job ends earlier. This time has to be longer than the difference between the times at
// which the replicas begin the job. It has to be shorter than the interval minus that
// difference. If all replicas begin at the same times of day, as with cron expressions, use
// half of the interval. If each replica counts the interval from its own start, use nearly the
// whole interval.
//
// If a job takes longer than its interval, it keeps its lock, and all replicas skip the runs in
// between. While the store is unavailable, no replica runs the job. A job is not notified of
// the loss of its lock. So work that must not be done twice needs a fencing token, or package
// once.
//
// The alternative is one replica that runs all jobs: leader.Elector is gocron's
// Elector.
//
//	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector)) // and go elector.Run(ctx, nil)
package cronmw
