package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/taskmw"
)

// service has the state that all replicas share.
type service struct {
	db  *redis.Client
	run string // name of the queue, and prefix of the keys
	job job
}

// routes returns the handler of all tasks. locks may be nil, to show the effect of
// missing locks.
func (s *service) routes(locks *core.Locker) asynq.Handler {
	var book, report asynq.Handler = asynq.HandlerFunc(s.book), &s.job
	if locks != nil {
		book = taskmw.Lock(locks, "account", taskmw.Payload("account"))(book)
		// The first task of a tick runs. It holds the lock for half of the interval, so
		// the other replicas skip their tasks.
		report = taskmw.Lock(locks, "report", taskmw.Type(), taskmw.OnBusy(taskmw.Skip), taskmw.Acquire(core.KeepFor(s.job.every/2)))(report)
	}
	mux := asynq.NewServeMux()
	mux.Handle("book", book)
	mux.Handle("report", s.job.delivered(report))
	return mux
}

// book reads the balance and writes the new balance, as if no other task ran at the
// same time. Two concurrent calls for one account lose a booking.
func (s *service) book(ctx context.Context, t *asynq.Task) error {
	var in struct{ Account, Amount int }
	if err := json.Unmarshal(t.Payload(), &in); err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	balance, err := s.balance(ctx, in.Account)
	if err != nil {
		return err
	}
	time.Sleep(rand.N(time.Millisecond))
	return s.db.Set(ctx, s.account(in.Account), balance+in.Amount, time.Hour).Err()
}

func (s *service) balance(ctx context.Context, account int) (int, error) {
	balance, err := s.db.Get(ctx, s.account(account)).Int()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return balance, err
}

func (s *service) account(n int) string { return fmt.Sprintf("%s:balance:%d", s.run, n) }

func (s *service) jobs() string { return s.run + "-jobs" }

// clean deletes the run's data in Redis. Locks need no cleaning, because they are
// released or expire.
func (s *service) clean(accounts int) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for n := range accounts {
		s.db.Del(ctx, s.account(n))
	}
	queue := asynq.NewInspectorFromRedisClient(s.db)
	for _, name := range []string{s.run, s.jobs()} {
		_ = queue.DeleteQueue(name, true)
		s.db.Del(ctx, "asynq:{"+name+"}:processed", "asynq:{"+name+"}:failed") // asynq leaves these
	}
}

// replica stands for one process of the service. It has its own connections, Locker,
// server and scheduler.
type replica struct {
	service   *service
	client    *redis.Client
	store     *redisstore.Store
	locks     *core.Locker
	server    *asynq.Server
	scheduler *asynq.Scheduler // nil until schedule is called
}

func (s *service) startReplica(addr string, workers int, unlocked bool) (*replica, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	// The prefix separates the run's locks from the locks of other runs. A real service
	// would keep its prefix.
	store, err := redisstore.New(client, redisstore.WithPrefix(s.run+":"))
	if err != nil {
		return nil, err
	}
	locks, err := core.New(store)
	if err != nil {
		return nil, err
	}
	mounted := locks
	if unlocked {
		mounted = nil
	}
	server := asynq.NewServerFromRedisClient(client, taskmw.Configure(asynq.Config{
		Concurrency:       workers,
		Queues:            map[string]int{s.jobs(): 2, s.run: 1},
		StrictPriority:    true,
		TaskCheckInterval: 20 * time.Millisecond,
		LogLevel:          asynq.ErrorLevel,
	}))
	if err := server.Start(s.routes(mounted)); err != nil {
		return nil, err
	}
	return &replica{service: s, client: client, store: store, locks: locks, server: server}, nil
}

func (r *replica) schedule(every time.Duration) error {
	s := asynq.NewSchedulerFromRedisClient(r.client, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
	if _, err := s.Register("@every "+every.String(), asynq.NewTask("report", nil), asynq.Queue(r.service.jobs()), asynq.MaxRetry(1)); err != nil {
		return err
	}
	if err := s.Start(); err != nil {
		return err
	}
	r.scheduler = s
	return nil
}

// stop shuts the replica down. The order matters: first the source of tasks, then the
// tasks, then their locks, and then the connections over which the locks are released.
func (r *replica) stop(err *error) {
	if r.scheduler != nil {
		r.scheduler.Shutdown()
	}
	r.server.Shutdown()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	*err = errors.Join(*err, r.locks.Close(ctx), r.store.Close(), r.client.Close())
}
