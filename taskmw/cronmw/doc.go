// Package cronmw lets the replicas of a service that schedule the same jobs run each
// once: with go-co-op/gocron and with robfig/cron.
//
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(cronmw.Locker(locks, 30*time.Second)))
//	c := cron.New(cron.WithChain(cronmw.Once(locks, "reports", 30*time.Second, cron.DefaultLogger)))
//
// Each job needs a name of its own, since jobs of one name exclude each other: in gocron
// by gocron.WithName, without which Locker refuses the job, in cron by a Once of its own.
//
// A replica that has run a job early gives its lock back, and the next one, whose
// clock is a little behind, would run it again. So the lock is kept for a time from
// when it was taken, whether the job is over by then or not. That time is longer than
// the replicas' clocks and the beginnings of their jobs differ, and shorter than the
// interval less that; half of the interval is right where schedules are aligned ("at
// each full minute"), as those of cron expressions are. Where each replica counts an
// interval from its own start, nearly the whole interval is.
//
// A job that takes longer than its interval keeps its lock, and the runs in between
// are skipped on all replicas. While the store does not answer no replica runs the
// job. A job is not told that its lock is lost: what must not be done twice needs a
// token, or package once.
//
// The other way is one replica that runs all jobs: leader.Elector is gocron's Elector.
//
//	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector)) // and go elector.Run(ctx, nil)
package cronmw
