package taskmw_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/taskmw"
)

// TestOverlap checks tasks that asynq delivers again while their first handler still
// runs (hazard 61). TTLs are 30 seconds unless a test sets another TTL. So an event
// within that time did not wait for an expiry.
func TestOverlap(t *testing.T) {
	t.Parallel()
	for name, scene := range map[string]func(*rig){
		"retry after a time-out":         timeOut,
		"shutdown while a task runs":     shutDown,
		"shutdown while a task waits":    shutDownWaiting,
		"handler that hangs":             hangs,
		"Idempotent task that timed out": timeOutIdempotent,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scene(newRig(t))
		})
	}
}

// stuck is a handler whose first call ignores its context until release is closed.
// Later calls return at once.
type stuck struct {
	gauge
	begun, release chan struct{}
	returned       atomic.Bool
	early          atomic.Int32 // calls that began while the first call ran
}

func newStuck(t *testing.T) *stuck {
	return &stuck{begun: make(chan struct{}), release: make(chan struct{})}
}

func (s *stuck) ProcessTask(context.Context, *asynq.Task) error {
	s.enter()
	defer s.leave()
	if s.total.Load() > 1 {
		if !s.returned.Load() {
			s.early.Add(1)
		}
		return nil
	}
	close(s.begun)
	<-s.release
	s.returned.Store(true)
	return nil
}

func (s *stuck) alone(t *testing.T, runs int32) {
	t.Helper()
	if most, total, early := s.most.Load(), s.total.Load(), s.early.Load(); most != 1 || total != runs || early != 0 {
		t.Errorf("%d runs, %d at once, %d too early; want %d, 1, 0", total, most, early, runs)
	}
}

func timeOut(r *rig) {
	h := newStuck(r.t)
	var delays atomic.Int32
	cfg := taskmw.Configure(config())
	delay := cfg.RetryDelayFunc
	cfg.RetryDelayFunc = func(n int, err error, task *asynq.Task) time.Duration {
		if errors.Is(err, core.ErrBusy) {
			delays.Add(1)
		}
		return delay(n, err, task)
	}
	r.serve(cfg, locked(r.t, r.locker(), taskmw.Acquire(core.Wait(10*time.Millisecond)))(h))
	id := r.enqueue("pay", `{"id":1}`, asynq.Timeout(3*time.Second), asynq.MaxRetry(2))
	within(r.t, "the task runs", h.begun)
	eventually(r.t, "the task was delivered again, and found busy, twice", func() bool { return delays.Load() >= 2 })
	if n := r.task(id).Retried; n != 1 {
		r.t.Errorf("%d retries are used up, want one by the time-out", n)
	}
	close(h.release)
	r.drained(soon)
	h.alone(r.t, 2)
	if n := r.archived(); n != 0 {
		r.t.Errorf("%d archived", n)
	}
}

func shutDown(r *rig) {
	h := newStuck(r.t)
	cfg := config()
	cfg.ShutdownTimeout = 50 * time.Millisecond
	stop := r.serve(taskmw.Configure(cfg), locked(r.t, r.locker())(h))
	id := r.enqueue("pay", `{"id":1}`, asynq.MaxRetry(1))
	within(r.t, "the task runs", h.begun)
	stop()
	if info := r.task(id); info.State != asynq.TaskStatePending {
		r.t.Errorf("after the shutdown the task is %v", info.State)
	}
	var delivered atomic.Int32
	lock := locked(r.t, r.locker())(h)
	r.serve(taskmw.Configure(config()), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		delivered.Add(1)
		return lock.ProcessTask(ctx, task)
	}))
	eventually(r.t, "another server has the task", func() bool { return delivered.Load() > 0 })
	if info := r.task(id); info.Retried != 0 {
		r.t.Errorf("%d retries are used up", info.Retried)
	}
	close(h.release)
	r.drained(soon)
	h.alone(r.t, 2)
}

func shutDownWaiting(r *rig) {
	release := hold(r.t, r.locker(), "order:1")
	var ran, delivered atomic.Int32
	lock := locked(r.t, r.locker())(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		ran.Add(1)
		return nil
	}))
	returned := make(chan error, 9)
	h := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		delivered.Add(1)
		err := lock.ProcessTask(ctx, task)
		returned <- err
		return err
	})
	cfg := config()
	cfg.ShutdownTimeout = 50 * time.Millisecond
	stop := r.serve(taskmw.Configure(cfg), h)
	id := r.enqueue("pay", `{"id":1}`, asynq.MaxRetry(0)) // so the task would wait for a long time
	eventually(r.t, "the task waits", func() bool { return delivered.Load() == 1 })
	stop()
	if err := within(r.t, "the wait ends with the server", returned); !errors.Is(err, context.Canceled) {
		r.t.Errorf("got %v", err)
	}
	if info := r.task(id); info.State != asynq.TaskStatePending {
		r.t.Errorf("after the shutdown the task is %v", info.State)
	}
	r.serve(taskmw.Configure(config()), h)
	eventually(r.t, "another server has the task", func() bool { return delivered.Load() > 1 })
	release()
	r.drained(soon)
	if ran.Load() != 1 || r.archived() != 0 {
		r.t.Errorf("ran %d times, %d archived", ran.Load(), r.archived())
	}
}

func hangs(r *rig) {
	h := newStuck(r.t)
	defer close(h.release)
	l := r.locker()
	start := time.Now()
	r.serve(taskmw.Configure(config()), locked(r.t, l, taskmw.Acquire(core.TTL(time.Second)))(h))
	r.enqueue("pay", `{"id":1}`, asynq.Timeout(time.Second))
	within(r.t, "the task runs", h.begun)
	eventually(r.t, "the retry runs although the first one hangs", func() bool { return h.total.Load() == 2 })
	// The task's deadline is a second after its start, counted by asynq in whole
	// seconds. MaxHold is a TTL longer.
	if held := time.Since(start); held < 1500*time.Millisecond {
		r.t.Errorf("the key was free after %v", held)
	}
	r.drained(soon)
}

func timeOutIdempotent(r *rig) {
	h := newStuck(r.t)
	o := newOnce(r.t, r.locker())
	var attempts atomic.Int32
	mw := taskmw.Idempotent(o, "pay", taskmw.TaskID())
	r.serve(taskmw.Configure(config()), mw(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		n, _ := once.AttemptFromContext(ctx)
		attempts.Store(int32(n))
		return h.ProcessTask(ctx, task)
	})))
	id := r.enqueue("pay", `{"id":1}`, asynq.Timeout(time.Second), asynq.MaxRetry(2))
	within(r.t, "the task runs", h.begun)
	eventually(r.t, "it was delivered again", func() bool { return r.task(id).Retried == 1 })
	close(h.release)
	r.drained(soon)
	h.alone(r.t, 1)
	if attempts.Load() != 1 || r.archived() != 0 {
		r.t.Errorf("attempt %d, %d archived", attempts.Load(), r.archived())
	}
}
