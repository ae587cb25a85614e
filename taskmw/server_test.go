package taskmw_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/taskmw"
)

// TestServer tests servers of asynq on a redis-server.
func TestServer(t *testing.T) {
	t.Parallel()
	for name, scene := range map[string]func(*rig){
		"three servers":                   serial,
		"contention uses no retry":        unburned,
		"busy task without retries waits": lastAttempt,
		"last attempt while key busy":     lastAttemptFails,
		"each policy":                     eachPolicy,
		"server without Configure":        unconfigured,
		"tasks with bad keys":             badKeys,
		"store down is a failure":         storeDown,
		"deleted key":                     keyDeleted, // hazard 38
		"task IDs":                        taskIDs,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scene(newRig(t))
		})
	}
}

func serial(r *rig) {
	const accounts, each = 3, 40
	var inside [accounts]gauge
	var all gauge
	h := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		n := int(task.Payload()[len(`{"id":`)] - '0')
		inside[n].enter()
		defer inside[n].leave()
		all.enter()
		defer all.leave()
		// The ledger is naive: it loses writes that overlap.
		balance, err := r.db.Get(ctx, fmt.Sprintf("balance:%d", n)).Int()
		if err != nil && balance != 0 {
			return err
		}
		time.Sleep(time.Millisecond)
		return r.db.Set(ctx, fmt.Sprintf("balance:%d", n), balance+1, 0).Err()
	})
	for i := range accounts * each {
		r.enqueue("pay", fmt.Sprintf(`{"id":%d}`, i%accounts))
	}
	for range 3 {
		r.serve(taskmw.Configure(config()), locked(r.t, r.locker())(h))
	}
	r.drained(soon)
	for n := range accounts {
		balance, err := r.db.Get(r.t.Context(), fmt.Sprintf("balance:%d", n)).Int()
		if most := inside[n].most.Load(); balance != each || err != nil || most != 1 {
			r.t.Errorf("account %d: balance %d (%v), %d at once; want %d, 1", n, balance, err, most, each)
		}
	}
	if r.archived() != 0 || all.most.Load() < 2 {
		r.t.Errorf("%d archived, %d accounts at once", r.archived(), all.most.Load())
	}
}

func unburned(r *rig) {
	var handled atomic.Int32
	var delays atomic.Int32
	cfg := config()
	cfg.ErrorHandler = asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) {
		handled.Add(1)
		r.t.Errorf("the ErrorHandler heard of %v", err)
	})
	cfg = taskmw.Configure(cfg)
	delay := cfg.RetryDelayFunc
	cfg.RetryDelayFunc = func(n int, err error, task *asynq.Task) time.Duration {
		delays.Add(1)
		return delay(n, err, task)
	}
	events := &seen{}
	release := hold(r.t, r.locker(), "order:secret")
	ran := make(chan int, 1)
	r.serve(cfg, locked(r.t, r.locker(core.WithObserver(events)), taskmw.Acquire(core.Wait(10*time.Millisecond)))(
		asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			n, _ := asynq.GetRetryCount(ctx)
			ran <- n
			return nil
		})))
	id := r.enqueue("pay", `{"id":"secret"}`, asynq.MaxRetry(1))
	eventually(r.t, "the task was rescheduled five times", func() bool { return delays.Load() >= 5 })
	// The task is between two attempts most of the time.
	var info *asynq.TaskInfo
	eventually(r.t, "the task is seen waiting", func() bool {
		info = r.task(id)
		return info.State == asynq.TaskStateRetry
	})
	if info.Retried != 0 || info.LastErr != "taskmw order: busy" {
		r.t.Errorf("retried %d, error %q", info.Retried, info.LastErr)
	}
	release()
	if n := within(r.t, "the task runs", ran); n != 0 {
		r.t.Errorf("it ran as retry %d", n)
	}
	r.drained(soon)
	if q, err := r.queue.GetQueueInfo("default"); err != nil || q.FailedTotal != 0 || q.ProcessedTotal != 1 || q.Archived != 0 {
		r.t.Errorf("%+v, %v", q, err)
	}
	if misused := events.all(core.Misused); len(misused) != 0 {
		r.t.Errorf("a configured server was complained of: %v", misused)
	}
}

func lastAttempt(r *rig) {
	release := hold(r.t, r.locker(), "order:1")
	l := r.locker()
	var waiting atomic.Int32
	lock := locked(r.t, l, taskmw.Acquire(core.Wait(0)))
	ran := make(chan struct{}, 2)
	h := lock(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		ran <- struct{}{}
		return nil
	}))
	r.serve(taskmw.Configure(config()), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		waiting.Add(1)
		return h.ProcessTask(ctx, task)
	}))
	first := r.enqueue("pay", `{"id":1}`, asynq.MaxRetry(0))
	eventually(r.t, "the task is delivered", func() bool { return waiting.Load() == 1 })
	// The second task has a retry left, so it is refused at once. The first task is on
	// its last attempt. Otherwise it would have been refused at once too.
	second := r.enqueue("pay", `{"id":1}`, asynq.MaxRetry(1))
	eventually(r.t, "the other is rescheduled", func() bool { return waiting.Load() >= 4 })
	if a, b := r.task(first), r.task(second); a.State != asynq.TaskStateActive || b.Retried != 0 {
		r.t.Errorf("the first is %v, the second at %d", a.State, b.Retried)
	}
	release()
	within(r.t, "one runs", ran)
	within(r.t, "the other runs", ran)
	r.drained(soon)
	if n := r.archived(); n != 0 {
		r.t.Errorf("%d archived", n)
	}
}

func lastAttemptFails(r *rig) {
	hold(r.t, r.locker(), "order:secret")
	handled := make(chan error, 9)
	cfg := config()
	cfg.ErrorHandler = asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { handled <- err })
	r.serve(taskmw.Configure(cfg), locked(r.t, r.locker())(mustNotRun(r.t)))
	// A tenth of the time-out is left for the handler, which is more than most machines
	// stand still.
	id := r.enqueue("pay", `{"id":"secret"}`, asynq.MaxRetry(0), asynq.Timeout(20*time.Second))
	if err := within(r.t, "the ErrorHandler is called", handled); !errors.Is(err, core.ErrBusy) {
		r.t.Errorf("the ErrorHandler got %v", err)
	}
	r.drained(soon)
	if info := r.task(id); info.State != asynq.TaskStateArchived || strings.Contains(info.LastErr, "secret") {
		r.t.Errorf("%v, %q", info.State, info.LastErr)
	}
}

func eachPolicy(r *rig) {
	l := r.locker()
	hold(r.t, l, "order:1")
	var mu sync.Mutex
	handled := map[string]error{}
	cfg := config()
	cfg.ErrorHandler = asynq.ErrorHandlerFunc(func(_ context.Context, task *asynq.Task, err error) {
		mu.Lock()
		defer mu.Unlock()
		handled[task.Type()] = err
	})
	mux := asynq.NewServeMux()
	ids := map[string]string{}
	for name, policy := range policies {
		mux.Handle(name, locked(r.t, l, taskmw.OnBusy(policy), taskmw.Acquire(core.Wait(0)))(mustNotRun(r.t)))
		ids[name] = r.enqueue(name, `{"id":1}`, asynq.MaxRetry(1), asynq.Retention(time.Hour))
	}
	r.serve(taskmw.Configure(cfg), mux)
	for name, want := range map[string]struct {
		state   asynq.TaskState
		retried int
		handled bool
	}{
		"reschedule": {asynq.TaskStateRetry, 0, false},
		"wait":       {asynq.TaskStateRetry, 0, false},
		"skip":       {asynq.TaskStateCompleted, 0, false},
		"fail":       {asynq.TaskStateArchived, 1, true},
	} {
		eventually(r.t, name+" is where it should be", func() bool {
			info := r.task(ids[name])
			return info != nil && info.State == want.state && info.Retried == want.retried
		})
		mu.Lock()
		if err := handled[name]; (err != nil) != want.handled || err != nil && !errors.Is(err, core.ErrBusy) {
			r.t.Errorf("%s: the ErrorHandler got %v", name, err)
		}
		mu.Unlock()
	}
	eventually(r.t, "the dropped task is gone", func() bool { return r.task(ids["drop"]) == nil })
	mu.Lock()
	defer mu.Unlock()
	if handled["drop"] != nil {
		r.t.Errorf("drop: the ErrorHandler got %v", handled["drop"])
	}
}

func unconfigured(r *rig) {
	events := &seen{}
	l := r.locker(core.WithObserver(events))
	hold(r.t, l, "order:1")
	r.serve(config(), locked(r.t, l, taskmw.Acquire(core.Wait(0)))(mustNotRun(r.t)))
	id := r.enqueue("pay", `{"id":1}`, asynq.MaxRetry(1000))
	eventually(r.t, "two retries are used up", func() bool { return r.task(id).Retried >= 2 })
	if misused := events.all(core.Misused); len(misused) != 1 || misused[0].Name != "order" || !strings.Contains(misused[0].Err.Error(), "taskmw.Configure") {
		r.t.Errorf("got the events %v", misused)
	}
}

func badKeys(r *rig) {
	handled := make(chan error, 9)
	cfg := config()
	cfg.ErrorHandler = asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { handled <- err })
	r.serve(taskmw.Configure(cfg), locked(r.t, r.locker())(mustNotRun(r.t)))
	id := r.enqueue("pay", `{"id":"secret\u0007"}`)
	if err := within(r.t, "the ErrorHandler is called", handled); !errors.Is(err, core.ErrInvalid) {
		r.t.Errorf("the ErrorHandler got %v", err)
	}
	r.drained(soon)
	info := r.task(id)
	if info.State != asynq.TaskStateArchived || info.Retried != 0 || info.LastErr != `taskmw order: the payload field "id" contains a control character` {
		r.t.Errorf("%v after %d, %q", info.State, info.Retried, info.LastErr)
	}
}

func storeDown(r *rig) {
	locks := newRig(r.t)
	l := locks.locker()
	var ran atomic.Int32
	r.serve(taskmw.Configure(config()), locked(r.t, l)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		ran.Add(1)
		return nil
	})))
	locks.server.Kill()
	id := r.enqueue("pay", `{"id":"secret"}`, asynq.MaxRetry(1000))
	eventually(r.t, "retries are used up", func() bool { return r.task(id).Retried >= 2 })
	if info := r.task(id); strings.Contains(info.LastErr, "secret") || ran.Load() != 0 {
		r.t.Errorf("%q, ran %d times", info.LastErr, ran.Load())
	}
	locks.server.Restart()
	r.drained(soon)
	if ran.Load() != 1 {
		r.t.Errorf("ran %d times", ran.Load())
	}
}

func keyDeleted(r *rig) {
	ended := make(chan error, 1)
	r.serve(taskmw.Configure(config()), locked(r.t, r.locker(), taskmw.Acquire(core.TTL(5*time.Second)))(
		asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			if n, err := r.db.Del(ctx, "lk2:{order:1}").Result(); n != 1 || err != nil {
				return errors.New("no key to delete")
			}
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil
		})))
	r.enqueue("pay", `{"id":1}`)
	if cause := within(r.t, "the handler's context is done", ended); !errors.Is(cause, core.ErrLost) {
		r.t.Errorf("the cause is %v", cause)
	}
	r.drained(soon)
	if q, err := r.queue.GetQueueInfo("default"); err != nil || q.FailedTotal != 0 || q.ProcessedTotal != 1 {
		r.t.Errorf("%+v, %v", q, err)
	}
}

func taskIDs(r *rig) {
	got := make(chan string, 1)
	r.serve(taskmw.Configure(config()), taskmw.Lock(r.locker(), "task", taskmw.Join(taskmw.TaskID(), taskmw.Type()))(
		asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			lease, _ := core.LeaseFromContext(ctx)
			got <- lease.Key()
			return nil
		})))
	task := asynq.NewTask("pay:b", nil, asynq.TaskID("17"))
	if _, err := r.client.Enqueue(task); err != nil {
		r.t.Fatal(err)
	}
	if key := within(r.t, "the task runs", got); key != "task:17:pay%3Ab" {
		r.t.Errorf("locked %q", key)
	}
	testserver.Eventually(r.t, soon, "the key is free", func() bool { return isFree(r.t, r.locker(), "task:17:pay%3Ab") })
}
