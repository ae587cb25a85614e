package taskmw_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/taskmw"
)

func TestMain(m *testing.M) {
	logging.Disable()                              // clients log every server that a test stopped
	slog.SetDefault(slog.New(slog.DiscardHandler)) // Lockers without an observer log each loss
	if plan := os.Getenv(childEnv); plan != "" {
		os.Exit(childMain(plan))
	}
	goleak.VerifyTestMain(m)
}

// soon is a generous deadline for short operations on a busy machine.
const soon = 30 * time.Second

// tick is the interval at which the servers of these tests take up rescheduled tasks.
const tick = 100 * time.Millisecond

// rig is a Redis for asynq and for locks.
type rig struct {
	t      *testing.T
	server *testserver.Redis
	db     *redis.Client
	client *asynq.Client
	queue  *asynq.Inspector
}

func newRig(t *testing.T) *rig {
	t.Helper()
	server := testserver.StartRedis(t)
	db := testclient.Redis(t, server.Addr)
	return &rig{t, server, db, asynq.NewClientFromRedisClient(db), asynq.NewInspectorFromRedisClient(db)}
}

// config returns the configuration of a server with short intervals.
func config() asynq.Config {
	return asynq.Config{
		Concurrency:              8,
		TaskCheckInterval:        5 * time.Millisecond,
		DelayedTaskCheckInterval: tick,
		LogLevel:                 asynq.FatalLevel,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 0 },
	}
}

// locker returns a new Locker with a separate store, like the Locker of another process.
func (r *rig) locker(opts ...core.Option) *core.Locker {
	r.t.Helper()
	store, err := redisstore.New(testclient.Redis(r.t, r.server.Addr))
	if err != nil {
		r.t.Fatal(err)
	}
	l := newLocker(r.t, store, opts...)
	r.t.Cleanup(func() { _ = store.Close() })
	return l
}

func newLocker(t *testing.T, store core.Store, opts ...core.Option) *core.Locker {
	t.Helper()
	l, err := core.New(store, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		_ = l.Close(ctx)
	})
	return l
}

func memLocker(t *testing.T, opts ...core.Option) *core.Locker {
	t.Helper()
	return newLocker(t, memstore.New(), opts...)
}

func newOnce(t *testing.T, l *core.Locker, opts ...once.Option) *once.Once {
	t.Helper()
	o, err := once.New(l, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// serve runs a server until the test ends or stop is called.
func (r *rig) serve(cfg asynq.Config, h asynq.Handler) (stop func()) {
	r.t.Helper()
	server := asynq.NewServerFromRedisClient(testclient.Redis(r.t, r.server.Addr), cfg)
	if err := server.Start(h); err != nil {
		r.t.Fatal(err)
	}
	stop = sync.OnceFunc(server.Shutdown)
	r.t.Cleanup(stop)
	return stop
}

func (r *rig) enqueue(typename, payload string, opts ...asynq.Option) string {
	r.t.Helper()
	opts = append([]asynq.Option{asynq.MaxRetry(3), asynq.Timeout(time.Minute)}, opts...)
	info, err := r.client.Enqueue(asynq.NewTask(typename, []byte(payload)), opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	return info.ID
}

// task returns the queue's information about a task, or nil if the task is done.
func (r *rig) task(id string) *asynq.TaskInfo {
	r.t.Helper()
	info, err := r.queue.GetTaskInfo("default", id)
	if errors.Is(err, asynq.ErrTaskNotFound) {
		return nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return info
}

// drained waits until all tasks of the queue are done or archived.
func (r *rig) drained(within time.Duration) {
	r.t.Helper()
	poll(r.t, within, "the queue is empty", func() bool {
		q, err := r.queue.GetQueueInfo("default")
		if err != nil {
			r.t.Fatal(err)
		}
		return q.Active+q.Pending+q.Scheduled+q.Retry == 0
	})
}

func (r *rig) archived() int {
	r.t.Helper()
	q, err := r.queue.GetQueueInfo("default")
	if err != nil {
		r.t.Fatal(err)
	}
	return q.Archived
}

// hold holds a key until the returned function is called, or the test ends.
func hold(t *testing.T, l *core.Locker, key string) (release func()) {
	t.Helper()
	lease, err := l.Acquire(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	release = func() { _ = lease.Release(context.Background()) }
	t.Cleanup(release)
	return release
}

func isFree(t *testing.T, l *core.Locker, key string) bool {
	t.Helper()
	lease, err := l.TryAcquire(context.Background(), key)
	if errors.Is(err, core.ErrBusy) {
		return false
	}
	if err != nil {
		t.Error(err)
		return false
	}
	if err := lease.Release(context.Background()); err != nil {
		t.Error(err)
	}
	return true
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	poll(t, soon, what, ok)
}

// poll works like testserver.Eventually, with longer pauses.
func poll(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	testserver.Eventually(t, limit, what, func() bool {
		if ok() {
			return true
		}
		time.Sleep(tick / 5)
		return false
	})
}

func within[T any](t *testing.T, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(soon):
		t.Fatalf("not so in %v: %s", soon, what)
	}
	return v
}

// run makes a middleware run a task with this payload, without a server.
func run(ctx context.Context, mw asynq.MiddlewareFunc, payload string, h asynq.HandlerFunc) error {
	return mw(h).ProcessTask(ctx, asynq.NewTask("order:pay", []byte(payload)))
}

func mustNotRun(t *testing.T) asynq.HandlerFunc {
	return func(context.Context, *asynq.Task) error {
		t.Error("the handler ran")
		return nil
	}
}

// keyOf is a handler that fails with the key of its lease.
func keyOf(ctx context.Context, _ *asynq.Task) error {
	lease, ok := core.LeaseFromContext(ctx)
	if !ok {
		return errors.New("no lease")
	}
	return fmt.Errorf("%s", lease.Key())
}

func locked(t *testing.T, l *core.Locker, opts ...taskmw.Option) asynq.MiddlewareFunc {
	t.Helper()
	return taskmw.Lock(l, "order", taskmw.Payload("id"), opts...)
}

// gauge counts the callers that are inside at once.
type gauge struct{ now, most, total atomic.Int32 }

func (g *gauge) enter() {
	g.total.Add(1)
	n := g.now.Add(1)
	for m := g.most.Load(); n > m && !g.most.CompareAndSwap(m, n); m = g.most.Load() {
	}
}

func (g *gauge) leave() { g.now.Add(-1) }

type seen struct {
	mu     sync.Mutex
	events []core.Event
}

func (s *seen) Observe(_ context.Context, e core.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

func (s *seen) all(k core.Kind) (some []core.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Kind == k {
			some = append(some, e)
		}
	}
	return some
}
