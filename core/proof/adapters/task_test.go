package adapters_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/taskmw"
)

// taskFront is an asynq server with its own queue. The queue's Redis is not the Redis of
// the locks.
type taskFront struct {
	*service
	queue  string
	client *redis.Client
	server *asynq.Server
	ask    *asynq.Inspector
	stops  sync.Once

	mu   sync.Mutex
	ran  map[string]bool // tasks that ran, by ID
	came map[string]bool // tasks that were delivered and found their key busy, by ID
}

func serveTasks(v *service) front {
	f := &taskFront{service: v, queue: v.prefix + v.name, ran: map[string]bool{}, came: map[string]bool{}}
	f.client = testclient.Redis(v.t, v.stage.queue.Addr)
	f.ask = asynq.NewInspectorFromRedisClient(f.client)
	wait := core.Wait(10 * time.Millisecond)
	if v.rushes() {
		wait = core.Wait(patience)
	}
	var h asynq.Handler = asynq.HandlerFunc(f.pay)
	if v.idempotent {
		h = taskmw.Idempotent(v.runs, "pay", taskmw.Payload("request"))(h)
	}
	h = taskmw.Lock(v.locker, "order", taskmw.Payload("order"), taskmw.Acquire(wait))(h)
	cfg := taskmw.Configure(asynq.Config{
		Concurrency:              4,
		Queues:                   map[string]int{f.queue: 1},
		TaskCheckInterval:        20 * time.Millisecond,
		DelayedTaskCheckInterval: 100 * time.Millisecond,
		ShutdownTimeout:          patience,
		LogLevel:                 asynq.FatalLevel,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 0 },
	})
	f.server = asynq.NewServerFromRedisClient(f.client, cfg)
	if err := f.server.Start(f.watch(h)); err != nil {
		v.t.Fatal(err)
	}
	return f
}

// watch records the tasks that find their key busy.
func (f *taskFront) watch(h asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		err := h.ProcessTask(ctx, t)
		if errors.Is(err, core.ErrBusy) {
			f.note(f.came, t.ResultWriter().TaskID())
		}
		return err
	})
}

func (f *taskFront) note(in map[string]bool, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	in[id] = true
}

func (f *taskFront) pay(ctx context.Context, t *asynq.Task) error {
	f.note(f.ran, t.ResultWriter().TaskID())
	_, err := f.work(ctx, f.name)
	return err
}

// call enqueues a task, and waits until the task is completed or archived. If ctx is
// done earlier, the task is canceled.
func (f *taskFront) call(ctx context.Context, r request) answer {
	opts := []asynq.Option{asynq.Queue(f.queue), asynq.MaxRetry(20), asynq.Timeout(10 * time.Minute), asynq.Retention(time.Hour)}
	if r.timeout > 0 {
		opts = append(opts, asynq.Timeout(r.timeout+time.Second)) // asynq counts in whole seconds
	}
	if r.untried {
		opts = append(opts, asynq.MaxRetry(0))
	}
	producer := asynq.NewClient(asynq.RedisClientOpt{Addr: f.stage.queue.Addr})
	task := asynq.NewTask("pay", fmt.Appendf(nil, `{"order":%q,"request":%q}`, r.order, r.key))
	info, err := producer.Enqueue(task, opts...)
	if err = errors.Join(err, producer.Close()); err != nil {
		return answer{outcome: outcome(err.Error())}
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var said []string // errors of all its failures
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if ctx.Err() != nil && r.ended != nil {
			f.cancel(info.ID, r.ended)
			r.ended = nil
		}
		if info, err = f.ask.GetTaskInfo(f.queue, info.ID); err != nil {
			return answer{outcome: outcome(err.Error())}
		}
		if !slices.Contains(said, info.LastErr) {
			said = append(said, info.LastErr)
		}
		if info.State == asynq.TaskStateCompleted || info.State == asynq.TaskStateArchived {
			break
		}
	}
	a := answer{raw: fmt.Sprintf("%v %q", info.State, said)}
	a.outcome = f.outcome(info)
	return a
}

func (f *taskFront) outcome(info *asynq.TaskInfo) outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case info.State == asynq.TaskStateCompleted && f.ran[info.ID]:
		return done
	case info.State == asynq.TaskStateCompleted:
		return replayed
	case strings.Contains(info.LastErr, core.ErrUnavailable.Error()):
		return unavailable
	}
	return "another answer"
}

// cancel asks the server to cancel a task, repeatedly until the service has noticed. A
// server that has just started may not listen yet.
func (f *taskFront) cancel(id string, noticed <-chan struct{}) {
	for range int(patience / time.Second) {
		if err := f.ask.CancelProcessing(id); err != nil {
			f.t.Errorf("cancel: %v", err)
		}
		select {
		case <-noticed:
			return
		case <-time.After(time.Second):
		}
	}
}

func (f *taskFront) redelivered(n int) {
	testserver.Eventually(f.t, patience, "tasks come back", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.came) >= n
	})
}

// stop makes the server accept no more tasks. It enqueues one more task, which the
// server must leave in the queue.
func (f *taskFront) stop() <-chan struct{} {
	f.server.Stop()
	info, err := asynq.NewClientFromRedisClient(f.client).Enqueue(asynq.NewTask("pay", nil), asynq.Queue(f.queue))
	if err != nil {
		f.t.Error(err)
		return nil
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		f.stops.Do(f.server.Shutdown)
		if info, err := f.ask.GetTaskInfo(f.queue, info.ID); err != nil || info.State != asynq.TaskStatePending {
			f.t.Errorf("a task that came during the shutdown is %v (%v)", info, err)
		}
	}()
	return stopped
}

func (f *taskFront) close() { f.stops.Do(f.server.Shutdown) }
