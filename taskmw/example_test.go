package taskmw_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/taskmw"
)

func ExampleLock() {
	locks, _ := core.New(memstore.New()) // in production a store that all workers share
	mux := asynq.NewServeMux()
	mux.Use(taskmw.Lock(locks, "account", taskmw.Payload("account_id")))
	mux.HandleFunc("book", func(ctx context.Context, _ *asynq.Task) error {
		lease, _ := core.LeaseFromContext(ctx) // ctx is canceled when the lock is lost
		fmt.Printf("booked under %s, fenced: %v\n", lease.Key(), lease.Token() > 0)
		return nil
	})
	// A server would run the mux:
	//	asynq.NewServer(redis, taskmw.Configure(asynq.Config{})).Run(mux)
	ctx, task := context.Background(), asynq.NewTask("book", []byte(`{"account_id":9007199254740993}`))
	fmt.Println(mux.ProcessTask(ctx, task))

	// Another process holds the account for longer than a task waits.
	lease, _ := locks.Acquire(ctx, core.Key("account", "9007199254740993"))
	fmt.Println(mux.ProcessTask(ctx, task))
	_ = lease.Release(ctx)
	// Output:
	// booked under account:9007199254740993, fenced: true
	// <nil>
	// taskmw account: busy
}

// The server's own functions decide about all other tasks. They are not called for busy
// tasks.
func ExampleConfigure() {
	locks, _ := core.New(memstore.New())
	permanent := errors.New("permanent")
	cfg := taskmw.Configure(asynq.Config{
		Concurrency:    20,
		RetryDelayFunc: func(n int, _ error, _ *asynq.Task) time.Duration { return time.Duration(n) * time.Minute },
		IsFailure:      func(err error) bool { return !errors.Is(err, context.Canceled) },
	})

	lease, _ := locks.Acquire(context.Background(), "account:9")
	defer lease.Release(context.Background())
	lock := taskmw.Lock(locks, "account", taskmw.Payload("id"), taskmw.Acquire(core.Wait(0)))
	handler := lock(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }))
	err := handler.ProcessTask(context.Background(), asynq.NewTask("book", []byte(`{"id":9}`)))

	fmt.Println("busy uses up a retry:", cfg.IsFailure(err), "and comes back within 7.5s:", cfg.RetryDelayFunc(3, err, nil) <= 7500*time.Millisecond)
	fmt.Println("a failure does:", cfg.IsFailure(permanent), "and comes back after", cfg.RetryDelayFunc(3, permanent, nil))
	// Output:
	// busy uses up a retry: false and comes back within 7.5s: true
	// a failure does: true and comes back after 3m0s
}

// Two producers enqueue the same invoice, which is sent once.
func ExampleIdempotent() {
	locks, _ := core.New(memstore.New())
	runs, _ := once.New(locks, once.Retain(7*24*time.Hour))
	mux := asynq.NewServeMux()
	mux.Use(taskmw.Idempotent(runs, "invoice", taskmw.Payload("invoice")))
	mux.HandleFunc("send", func(ctx context.Context, _ *asynq.Task) error {
		attempt, _ := once.AttemptFromContext(ctx)
		fmt.Println("attempt", attempt)
		if attempt == 1 {
			return errors.New("no connection")
		}
		return nil
	})
	task := asynq.NewTask("send", []byte(`{"invoice":"2026-17"}`))
	for range 4 {
		fmt.Println(mux.ProcessTask(context.Background(), task))
	}
	// Output:
	// attempt 1
	// no connection
	// attempt 2
	// <nil>
	// <nil>
	// <nil>
}

// Each replica schedules the report. The first task of each scheduled time runs.
func ExampleOnBusy() {
	locks, _ := core.New(memstore.New())
	lock := taskmw.Lock(locks, "report", taskmw.Type(), taskmw.OnBusy(taskmw.Skip),
		taskmw.Acquire(core.KeepFor(30*time.Second)))
	report := lock(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		fmt.Println("written")
		return nil
	}))
	for range 3 {
		fmt.Println(report.ProcessTask(context.Background(), asynq.NewTask("daily", nil)))
	}
	// Output:
	// written
	// <nil>
	// <nil>
	// <nil>
}

// A transfer locks both accounts. Two transfers in opposite directions do not
// deadlock.
func ExampleAlso() {
	locks, _ := core.New(memstore.New())
	lock := taskmw.Lock(locks, "account", taskmw.Payload("from"), taskmw.Also(taskmw.Payload("to")))
	transfer := lock(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		_, from := core.LeaseOf(ctx, core.Key("account", "a"))
		_, to := core.LeaseOf(ctx, core.Key("account", "b"))
		fmt.Println("locked:", from, "and", to)
		return nil
	}))
	fmt.Println(transfer.ProcessTask(context.Background(), asynq.NewTask("transfer", []byte(`{"from":"b","to":"a"}`))))
	// Output:
	// locked: true and true
	// <nil>
}
