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

// service is what all replicas work on.
type service struct {
	db  *redis.Client
	run string // names the queue, and begins the keys
	job job
}

// routes mounts the service. locks may be nil, to show what happens then.
func (s *service) routes(locks *core.Locker) asynq.Handler {
	var book, report asynq.Handler = asynq.HandlerFunc(s.book), &s.job
	if locks != nil {
		book = taskmw.Lock(locks, "account", taskmw.Payload("account"))(book)
		// The first task of a tick runs, and keeps the others away.
		report = taskmw.Lock(locks, "report", taskmw.Type(), taskmw.OnBusy(taskmw.Skip), taskmw.Acquire(core.KeepFor(s.job.every/2)))(report)
	}
	mux := asynq.NewServeMux()
	mux.Handle("book", book)
	mux.Handle("report", s.job.delivered(report))
	return mux
}

// book is written as if it were the only task: it reads the balance, and writes
// it back. Two of them at once on one account lose a booking.
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

// jobs is the queue of the scheduled job.
func (s *service) jobs() string { return s.run + "-jobs" }

// clean removes what the run has left in Redis. Locks are gone by themselves.
func (s *service) clean(accounts int) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for n := range accounts {
		s.db.Del(ctx, s.account(n))
	}
	queue := asynq.NewInspectorFromRedisClient(s.db)
	for _, name := range []string{s.run, s.jobs()} {
		_ = queue.DeleteQueue(name, true)
		s.db.Del(ctx, "asynq:{"+name+"}:processed", "asynq:{"+name+"}:failed") // which asynq leaves
	}
}

// replica is one process of the service, but for running in this one: with its
// own connections, its own Locker, its own server and scheduler.
type replica struct {
	service   *service
	client    *redis.Client
	store     *redisstore.Store
	locks     *core.Locker
	server    *asynq.Server
	scheduler *asynq.Scheduler // nil until there is one
}

func (s *service) startReplica(addr string, workers int, unlocked bool) (*replica, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	// A prefix of its own, as this is no service that goes on.
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

// schedule begins to schedule the job.
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

// stop shuts the replica down. The order matters: what brings tasks first, then
// the tasks, then the locks they held, then the connections that give the locks
// back.
func (r *replica) stop(err *error) {
	if r.scheduler != nil {
		r.scheduler.Shutdown()
	}
	r.server.Shutdown()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	*err = errors.Join(*err, r.locks.Close(ctx), r.store.Close(), r.client.Close())
}
