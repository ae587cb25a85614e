// Package cronmw lets replicas of a service that schedule the same jobs run each job
// once: with go-co-op/gocron and with robfig/cron.
//
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(cronmw.Locker(locks, 30*time.Second)))
//	c := cron.New(cron.WithChain(cronmw.Once(locks, "reports", 30*time.Second, cron.DefaultLogger)))
//
// Each job needs a name of its own, because jobs of one name exclude each other: in
// gocron by gocron.WithName, without which Locker refuses the job, in cron by a Once of
// its own.
//
// If a replica released its lock as soon as its job is done, the next one, whose clock
// is a little behind, would run the job again. So the lock is kept for a time from its
// acquire, whether the job is done by then or not. That time is longer than the
// difference between the replicas' clocks and the beginnings of their jobs, and shorter
// than the interval less that difference. Half of the interval is right if schedules
// are aligned ("at each full minute"), as those of cron expressions are. If each
// replica counts an interval from its own start, nearly the whole interval is right.
//
// A job that takes longer than its interval keeps its lock, and the runs in between are
// skipped on all replicas. While the store does not answer no replica runs the job. A
// job is not notified of the loss of its lock: work that must not be done twice needs a
// token, or package once.
//
// The alternative is one replica that runs all jobs: leader.Elector is gocron's
// Elector.
//
//	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector)) // and go elector.Run(ctx, nil)
package cronmw
