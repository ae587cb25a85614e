// Command worker books thousands of tasks on a few accounts, with several asynq servers
// that have several workers each. With the lock, no booking is lost. In addition, each
// replica schedules the same job, and the job runs once per tick.
//
//	go run ./examples/worker              # embedded Redis, no server needed
//	go run ./examples/worker -unlocked    # the same without locks: exits 1
//	go run ./examples/worker -redis 127.0.0.1:6379
//
// The exit code is 0 if three conditions hold. Every balance is the sum of the
// account's bookings. No task was archived or used a retry. The job ran once in every
// tick. The exit code is 1 if a condition does not hold. It is 2 after an error, after
// a run of -unlocked without harm, and on a machine that is too busy for the job.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

type config struct {
	redis                              string
	tasks, accounts, replicas, workers int
	ticks                              int
	unlocked                           bool
}

const patience = 100 * time.Second

func main() {
	var c config
	flag.StringVar(&c.redis, "redis", "", "address of a Redis server (default: an embedded one)")
	flag.IntVar(&c.tasks, "tasks", 3000, "how many tasks")
	flag.IntVar(&c.accounts, "accounts", 8, "on how many accounts they book")
	flag.IntVar(&c.replicas, "replicas", 3, "how many replicas of the service")
	flag.IntVar(&c.workers, "workers", 8, "how many workers a replica has")
	flag.IntVar(&c.ticks, "ticks", 3, "for how many ticks of 2s the scheduled job is watched")
	flag.BoolVar(&c.unlocked, "unlocked", false, "leave the locks out, to see what they are for")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	status, err := work(ctx, c)
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		status = 2
	}
	os.Exit(status)
}

func work(ctx context.Context, c config) (status int, err error) {
	if flag.NArg() > 0 {
		return 2, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if c.tasks < 1 || c.accounts < 1 || c.replicas < 1 || c.workers < 1 || c.ticks < 1 {
		return 2, errors.New("-tasks, -accounts, -replicas, -workers and -ticks must be at least 1")
	}
	addr := c.redis
	if addr == "" {
		embedded, stop, err := startEmbedded()
		if err != nil {
			return 2, err
		}
		defer stop()
		addr = embedded
	}
	db := redis.NewClient(&redis.Options{Addr: addr})
	defer db.Close()
	if err := db.Ping(ctx).Err(); err != nil {
		return 2, fmt.Errorf("redis at %s: %w", addr, err)
	}
	// Each run has its own queues and accounts, because a real Redis can have the data
	// of earlier runs.
	s := &service{db: db, run: fmt.Sprintf("worker-%d", rand.N(9000)+1000), job: job{every: 2 * time.Second, ran: map[int]int{}}}
	defer s.clean(c.accounts)
	booked, err := s.enqueue(ctx, c.tasks, c.accounts)
	if err != nil {
		return 2, err
	}
	replicas := make([]*replica, c.replicas)
	for i := range replicas {
		r, err := s.startReplica(addr, c.workers, c.unlocked)
		if err != nil {
			return 2, err
		}
		defer r.stop(&err)
		replicas[i] = r
	}
	// Schedulers count whole seconds from their start, so all schedulers start in the
	// same second.
	s.job.start = time.Now().Truncate(time.Second).Add(time.Second)
	time.Sleep(time.Until(s.job.start))
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go s.job.watch(watching)
	for _, r := range replicas {
		if err := r.schedule(s.job.every); err != nil {
			return 2, err
		}
	}
	drained, err := s.drained(ctx)
	if err != nil {
		return 2, err
	}
	if err := sleep(ctx, time.Until(s.job.start.Add(time.Duration(c.ticks+1)*s.job.every))); err != nil {
		return 2, err
	}
	return s.report(ctx, c, booked, drained)
}

// enqueue enqueues the tasks, and returns the sum of the bookings on each account.
func (s *service) enqueue(ctx context.Context, tasks, accounts int) ([]int, error) {
	client := asynq.NewClientFromRedisClient(s.db)
	booked := make([]int, accounts)
	for i := range tasks {
		account, amount := rand.N(accounts), rand.N(100)+1
		booked[account] += amount
		task := asynq.NewTask("book", fmt.Appendf(nil, `{"account":%d,"amount":%d}`, account, amount))
		// Contention uses no retry, so one task in ten has no retry.
		retries := min(1, i%10)
		if _, err := client.EnqueueContext(ctx, task, asynq.Queue(s.run), asynq.MaxRetry(retries), asynq.Timeout(patience)); err != nil {
			return nil, err
		}
	}
	return booked, nil
}

// drained waits until all tasks are completed or archived.
func (s *service) drained(ctx context.Context) (time.Duration, error) {
	queue := asynq.NewInspectorFromRedisClient(s.db)
	for begin := time.Now(); ; {
		info, err := queue.GetQueueInfo(s.run)
		if err != nil {
			return 0, err
		}
		left := info.Pending + info.Active + info.Scheduled + info.Retry
		if left == 0 {
			return time.Since(begin), nil
		}
		// The interval is long, because with the embedded Redis this request costs more
		// than a task.
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return 0, fmt.Errorf("%d tasks left: %w", left, err)
		}
	}
}

// report prints the results and returns the exit code.
func (s *service) report(ctx context.Context, c config, booked []int, drained time.Duration) (int, error) {
	var wrong, missing int
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "account\tbooked\tbalance\t")
	for account, want := range booked {
		got, err := s.balance(ctx, account)
		if err != nil {
			return 2, err
		}
		fmt.Fprintf(table, "%d\t%d\t%d\t\n", account, want, got)
		if got != want {
			wrong++
			missing += want - got
		}
	}
	if err := table.Flush(); err != nil {
		return 2, err
	}
	info, err := asynq.NewInspectorFromRedisClient(s.db).GetQueueInfo(s.run)
	if err != nil {
		return 2, err
	}
	fmt.Printf("%d tasks on %d accounts by %d workers of %d replicas in %.1fs: %d accounts wrong, by %d; %d tasks archived, %d retries burned\n",
		c.tasks, c.accounts, c.replicas*c.workers, c.replicas, drained.Seconds(), wrong, missing, info.Archived, info.Failed)

	once, more, never, late := s.job.ticks(c.ticks)
	fmt.Printf("a job scheduled by %d replicas: of %d ticks it ran once in %d, more often in %d, never in %d\n",
		c.replicas, c.ticks, once, more, never)
	damage := wrong > 0 || info.Archived > 0 || info.Failed > 0
	switch {
	case c.unlocked && wrong == 0:
		return 2, errors.New("without the lock no booking was lost: this run shows nothing, try more -tasks")
	case !damage && once < c.ticks && late:
		return 2, errors.New("the machine was too busy to run the scheduled job in time: this run shows nothing of it")
	case damage || once < c.ticks:
		return 1, nil
	}
	return 0, nil
}

// sleep waits for d. It returns the cause of ctx if ctx is done first.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
