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
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/taskmw"
)

// patient is how long a hot task waits. It is longer than all steps of a scene together.
const patient = 4 * soon

func TestCrowds(t *testing.T) {
	t.Parallel()
	for name, scene := range map[string]func(*rig){
		"one task of a key waits":          oneWaits,
		"one task waits for a run":         oneWaitsForARun,
		"task waits for its second key":    oneWaitsForTheSecond,
		"next task waits":                  nextWaits,
		"half of the slots wait":           halfWaits,
		"task on its last attempt waits":   lastOneWaits,
		"nothing remembered of done tasks": nothingRemembered,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scene(newRig(t))
		})
	}
}

// stream is a handler that records the deliveries that have not returned yet.
type stream struct {
	asynq.Handler
	mu      sync.Mutex
	count   int
	inside  map[int]string // the tasks' types, by delivery
	refused int
}

func (s *stream) ProcessTask(ctx context.Context, task *asynq.Task) error {
	s.mu.Lock()
	if s.inside == nil {
		s.inside = map[int]string{}
	}
	s.count++
	n := s.count
	s.inside[n] = task.Type()
	s.mu.Unlock()
	err := errors.New("panic")
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.inside, n)
		if errors.Is(err, core.ErrBusy) {
			s.refused++
		}
	}()
	err = s.Handler.ProcessTask(ctx, task)
	return err
}

func (s *stream) refusals() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// stays waits until the hot deliveries in progress have not changed during 20 refusals.
// The parameter want is their required number.
func (s *stream) stays(t *testing.T, want int) {
	t.Helper()
	var old map[int]bool
	var since int
	eventually(t, fmt.Sprintf("%d hot tasks wait or run, the others are rescheduled", want), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for n := range old {
			if s.inside[n] == "" {
				delete(old, n)
			}
		}
		if len(old) == want && s.refused-since >= 20 {
			return true
		}
		if old == nil || len(old) < want {
			old, since = map[int]bool{}, s.refused
			for n, kind := range s.inside {
				if strings.HasPrefix(kind, "hot") {
					old[n] = true
				}
			}
		}
		return false
	})
}

// crowded serves 40 hot tasks and 20 other tasks. The keys of the hot tasks stay busy
// until release is called. hot enqueues the hot task i. crowded checks that all other
// tasks are done before the call of release, and that want hot tasks wait or run. Then
// it calls release, and waits until all hot tasks are done.
func (r *rig) crowded(h asynq.Handler, hot func(i int), release func(), want int) {
	r.t.Helper()
	const others = 20
	s := &stream{Handler: h}
	for i := range 40 {
		hot(i)
	}
	for i := range others {
		r.enqueue("other", fmt.Sprintf(`{"id":"other %d","to":"other %[1]d"}`, i))
	}
	r.serve(taskmw.Configure(config()), s)
	eventually(r.t, "the others are done", func() bool {
		q, err := r.queue.GetQueueInfo("default")
		if err != nil {
			r.t.Fatal(err)
		}
		return q.ProcessedTotal == others
	})
	s.stays(r.t, want)
	release()
	r.drained(soon)
	if q, err := r.queue.GetQueueInfo("default"); err != nil || q.FailedTotal != 0 || q.Archived != 0 {
		r.t.Errorf("%d failed, %d archived, %v", q.FailedTotal, q.Archived, err)
	}
}

// unretried returns a handler that checks that its tasks have used up no retry.
func unretried(t *testing.T) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		if n, _ := asynq.GetRetryCount(ctx); n != 0 {
			t.Errorf("%d retries are used up", n)
		}
		return nil
	})
}

func oneWaits(r *rig) {
	release := hold(r.t, r.locker(), "order:hot")
	// Two middlewares that lock the same key.
	l, mux := r.locker(), asynq.NewServeMux()
	for _, kind := range []string{"hot", "other"} {
		mux.Handle(kind, locked(r.t, l, taskmw.Acquire(core.Wait(patient)))(unretried(r.t)))
	}
	mux.Handle("hot too", locked(r.t, l, taskmw.Acquire(core.Wait(patient)))(unretried(r.t)))
	r.crowded(mux, func(i int) { r.enqueue([]string{"hot", "hot too"}[i%2], `{"id":"hot"}`) }, release, 1)
}

func oneWaitsForARun(r *rig) {
	l, free := r.locker(), make(chan struct{})
	begun := make(chan struct{}, 1)
	mw := taskmw.Idempotent(newOnce(r.t, l, once.Acquire(core.Wait(patient))), "order", taskmw.Payload("id"))
	h := mw(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		if task.Type() == "hot" {
			begun <- struct{}{} // a second run would block
			<-free
		}
		return nil
	}))
	r.crowded(h, func(int) { r.enqueue("hot", `{"id":"hot"}`) }, func() { close(free) }, 2)
}

func oneWaitsForTheSecond(r *rig) {
	release := hold(r.t, r.locker(), "order:hot")
	mw := locked(r.t, r.locker(), taskmw.Also(taskmw.Payload("to")), taskmw.Acquire(core.Wait(patient)))
	r.crowded(mw(unretried(r.t)), func(i int) { r.enqueue("hot", fmt.Sprintf(`{"id":"a%d","to":"hot"}`, i)) }, release, 1)
}

func nextWaits(r *rig) {
	const tasks = 6
	next := make(chan struct{})
	s := &stream{Handler: locked(r.t, r.locker(), taskmw.Acquire(core.Wait(patient)))(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		<-next
		return nil
	}))}
	for range tasks {
		r.enqueue("hot", `{"id":"hot"}`)
	}
	r.serve(taskmw.Configure(config()), s)
	for range tasks - 3 {
		s.stays(r.t, 2) // one runs, and one waits
		next <- struct{}{}
	}
	close(next)
	r.drained(soon)
	if q, err := r.queue.GetQueueInfo("default"); err != nil || q.FailedTotal != 0 || q.Archived != 0 || q.ProcessedTotal != tasks {
		r.t.Errorf("%+v, %v", q, err)
	}
}

func halfWaits(r *rig) {
	const keys = 20
	l := r.locker()
	var releases []func()
	for i := range keys {
		releases = append(releases, hold(r.t, l, fmt.Sprintf("order:hot %d", i)))
	}
	mw := locked(r.t, r.locker(), taskmw.Acquire(core.Wait(patient)))
	r.crowded(mw(unretried(r.t)), func(i int) { r.enqueue("hot", fmt.Sprintf(`{"id":"hot %d"}`, i%keys)) },
		func() {
			for _, release := range releases {
				release()
			}
		}, config().Concurrency/2)
}

func lastOneWaits(r *rig) {
	release := hold(r.t, r.locker(), "order:hot")
	mw := locked(r.t, r.locker(), taskmw.Acquire(core.Wait(patient)))
	r.crowded(mw(unretried(r.t)), func(i int) {
		retries := 3
		if i == 0 {
			retries = 0
		}
		r.enqueue("hot", `{"id":"hot"}`, asynq.MaxRetry(retries))
	}, release, 1)
}

func nothingRemembered(r *rig) {
	release := hold(r.t, r.locker(), "order:held")
	cfg := taskmw.Configure(config())
	var ran atomic.Int32
	s := &stream{Handler: locked(r.t, r.locker(), taskmw.Acquire(core.Wait(10*time.Millisecond)))(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		ran.Add(1)
		switch task.Type() {
		case "fail":
			return errors.New("no money")
		case "panic":
			panic("on fire")
		}
		return nil
	}))}
	r.serve(cfg, s)
	for i := range 20 {
		r.enqueue([]string{"done", "fail", "panic"}[i%3], fmt.Sprintf(`{"id":%d}`, i), asynq.MaxRetry(0))
	}
	for range 5 {
		r.enqueue("held", `{"id":"held"}`)
	}
	eventually(r.t, "busy tasks are refused", func() bool { return s.refusals() >= 20 })
	release()
	r.drained(soon)
	eventually(r.t, "the key that was busy is forgotten when tasks of others come", func() bool {
		r.enqueue("done", `{"id":1}`)
		r.drained(soon)
		keys, waiting := taskmw.Remembered(cfg)
		if waiting != 0 {
			r.t.Fatalf("%d wait for nothing", waiting)
		}
		return keys == 0
	})
}
