package taskmw_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/taskmw"
)

// TestDrain runs many tasks of ten keys, with more workers than keys: 10,000 tasks in
// the proof, and 1,000 otherwise. Each task has to run once without using up a retry.
func TestDrain(t *testing.T) {
	t.Parallel()
	const keys = 10
	each := tally.AllTrials(1000) // for a key
	tasks := each * keys
	r := newRig(t)
	r.enqueueAll(tasks, func(i int) string { return fmt.Sprintf(`{"id":%d}`, i%keys) })

	cfg := config()
	cfg.Concurrency = 20
	cfg.DelayedTaskCheckInterval = time.Second
	cfg = taskmw.Configure(cfg)
	var inside [keys]gauge
	var ledger [keys]atomic.Int64 // the count of each key, read and then written
	h := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		lease, _ := core.LeaseFromContext(ctx)
		n, err := strconv.Atoi(lease.Key()[len("order:"):])
		if err != nil {
			return err
		}
		inside[n].enter()
		defer inside[n].leave()
		if retried, _ := asynq.GetRetryCount(ctx); retried != 0 {
			t.Errorf("a task has used up %d retries", retried)
		}
		ledger[n].Store(ledger[n].Load() + 1)
		return nil
	})
	for range 2 {
		r.serve(cfg, locked(t, r.locker())(h))
	}
	r.drained(3 * time.Minute)
	for n := range inside {
		if total, most := inside[n].total.Load(), inside[n].most.Load(); int(total) != each || most != 1 || int(ledger[n].Load()) != each {
			t.Errorf("key %d: %d runs, %d at once, %d in the ledger", n, total, most, ledger[n].Load())
		}
	}
	q, err := r.queue.GetQueueInfo("default")
	if err != nil || q.Archived != 0 || q.FailedTotal != 0 || q.ProcessedTotal != tasks {
		t.Errorf("%+v, %v", q, err)
	}
}

// enqueueAll enqueues many tasks, in no particular order.
func (r *rig) enqueueAll(n int, payload func(i int) string, opts ...asynq.Option) {
	r.t.Helper()
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 8 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				opts := append([]asynq.Option{asynq.MaxRetry(1), asynq.Timeout(10 * time.Minute)}, opts...)
				if _, err := r.client.Enqueue(asynq.NewTask("pay", []byte(payload(i))), opts...); err != nil {
					r.t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
