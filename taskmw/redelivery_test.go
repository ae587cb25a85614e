package taskmw_test

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// TestRedelivery stops or kills a worker in a separate process in the middle of its
// tasks. asynq delivers the tasks again to a worker of this process. The test makes asynq
// recover the tasks at once.
func TestRedelivery(t *testing.T) {
	t.Parallel()

	// hazard 61
	t.Run("stopped worker goes on", func(t *testing.T) {
		t.Parallel()
		const tasks = 50
		r := newRig(t)
		stopped := plan{Name: "stopped", Addr: r.server.Addr, TTL: 2 * time.Second, Workers: tasks}
		c := newChild(t, stopped)
		for i := range tasks {
			r.enqueue("pay", payload(i), asynq.MaxRetry(1), asynq.Timeout(10*time.Minute))
		}
		r.allBegun(tasks, 1)
		c.Pause()
		r.expire()

		next := stopped
		next.Name = "next"
		r.set("go:next")
		r.begin(next)
		r.allBegun(tasks, 2)
		r.drained(soon)
		r.set("go:stopped")
		c.Resume()
		eventually(t, "the stopped worker has tried to write everything", func() bool {
			n, _ := r.db.Get(t.Context(), "written:stopped").Int()
			return n == tasks
		})

		for i := range tasks {
			key := strconv.Itoa(i)
			if begun := r.list("begun:" + key); !slices.Equal(begun, []string{"stopped as attempt 1", "next as attempt 2"}) {
				t.Errorf("task %d: %q", i, begun)
			}
			got, err := r.db.HMGet(t.Context(), "register:"+key, "effects", "refused").Result()
			if err != nil || fmt.Sprint(got) != "[1 1]" {
				t.Errorf("task %d: %v effects and refused writes (%v), want 1 and 1", i, got, err)
			}
		}
		// A task that is enqueued again counts as done.
		for i := range tasks {
			r.enqueue("pay", payload(i))
		}
		r.drained(soon)
		if n := r.archived(); n != 0 {
			t.Errorf("%d archived", n)
		}
		r.allBegun(tasks, 2)
	})

	// hazard 48
	t.Run("killed worker", func(t *testing.T) {
		t.Parallel()
		const tasks = 10
		r := newRig(t)
		killed := plan{Name: "killed", Addr: r.server.Addr, TTL: 2 * time.Second, Workers: tasks}
		c := newChild(t, killed)
		for i := range tasks {
			r.enqueue("pay", payload(i), asynq.MaxRetry(1), asynq.Timeout(10*time.Minute))
		}
		r.allBegun(tasks, 1)
		c.Kill()
		var free [tasks]time.Time // by task: the earliest time at which its key is free
		for i := range tasks {
			at := time.Now()
			left, err := r.db.PTTL(t.Context(), "lk2:{order:"+strconv.Itoa(i)+"}").Result()
			if err != nil {
				t.Fatal(err)
			}
			free[i] = at.Add(left - time.Millisecond)
		}
		r.expire()
		next := killed
		next.Name = "next"
		r.set("go:next")
		var wg sync.WaitGroup
		at := time.Now()
		for i := range tasks {
			wg.Go(func() {
				// The loop ends as soon as the second run begins. If the run never
				// begins, drained fails the test.
				for end := at.Add(soon); time.Now().Before(end) && len(r.list("begun:"+strconv.Itoa(i))) < 2; {
					time.Sleep(time.Millisecond)
				}
				if now := time.Now(); now.Before(free[i]) {
					t.Errorf("task %d ran again %v before the key was free", i, free[i].Sub(now))
				}
			})
		}
		r.begin(next)
		wg.Wait()
		r.drained(soon)
		for i := range tasks {
			if begun := r.list("begun:" + strconv.Itoa(i)); !slices.Equal(begun, []string{"killed as attempt 1", "next as attempt 2"}) {
				t.Errorf("task %d: %q", i, begun)
			}
		}
		if n := r.archived(); n != 0 {
			t.Errorf("%d archived", n)
		}
	})
}

func payload(i int) string { return fmt.Sprintf(`{"id":%d}`, i) }

func (r *rig) set(key string) {
	r.t.Helper()
	if err := r.db.Set(r.t.Context(), key, 1, 0).Err(); err != nil {
		r.t.Fatal(err)
	}
}

// allBegun waits until each task has begun this number of times.
func (r *rig) allBegun(tasks, times int) {
	r.t.Helper()
	for i := range tasks {
		eventually(r.t, fmt.Sprintf("task %d was begun %d times", i, times), func() bool {
			return len(r.list("begun:"+strconv.Itoa(i))) == times
		})
	}
}
