//go:build !race

package taskmw_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/taskmw"
)

// TestAllocations limits the middlewares' additional allocations, compared with
// hand-written code that makes the same calls. A Lock has the same limit for a small
// and for a large payload. It does not run with the race detector, which allocates too.
func TestAllocations(t *testing.T) {
	locks, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	runs, err := once.New(locks)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	done := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	small := asynq.NewTask("x", []byte(`{"order":{"id":"42"}}`))
	large := asynq.NewTask("x", []byte(`{"x":[`+strings.Repeat(`{"a":"b","c":[1,2,3]},`, 5000)+`0],"order":{"id":"42"}}`))

	t.Run("Lock", func(t *testing.T) {
		opts := []core.AcquireOption{core.Name("order"), core.Wait(0)}
		lock := testing.AllocsPerRun(200, func() {
			lease, err := locks.Acquire(ctx, "order:42", opts...)
			if err != nil {
				t.Fatal(err)
			}
			_ = lease.Context() // under which the task runs
			_ = lease.Release(context.WithoutCancel(ctx))
		})
		mw := taskmw.Lock(locks, "order", taskmw.Payload("order.id"))
		for _, task := range []*asynq.Task{small, large} {
			n := testing.AllocsPerRun(200, func() {
				if err := mw(done).ProcessTask(ctx, task); err != nil {
					t.Fatal(err)
				}
			})
			if n-lock > 8 {
				t.Errorf("%v allocations, of which the lock makes %v", n, lock)
			}
		}
	})
	t.Run("Idempotent replay", func(t *testing.T) {
		call := once.Call{Name: "order", Key: "42"}
		replay := testing.AllocsPerRun(200, func() {
			_, err := runs.Do(ctx, call, func(context.Context) (once.Answer, error) { return once.Answer{}, nil })
			if err != nil {
				t.Fatal(err)
			}
		})
		mw := taskmw.Idempotent(runs, "order2", taskmw.Payload("order.id"))
		n := testing.AllocsPerRun(200, func() {
			if err := mw(done).ProcessTask(ctx, small); err != nil {
				t.Fatal(err)
			}
		})
		if n-replay > 12 {
			t.Errorf("%v allocations, of which the replay makes %v", n, replay)
		}
	})
	t.Run("Idempotent first run", func(t *testing.T) {
		i := 0
		key := func(context.Context, *asynq.Task) (string, error) { i++; return strconv.Itoa(i), nil }
		run := testing.AllocsPerRun(200, func() {
			k, _ := key(ctx, small)
			_, err := runs.Do(ctx, once.Call{Name: "order3", Key: k}, func(context.Context) (once.Answer, error) { return once.Answer{}, nil })
			if err != nil {
				t.Fatal(err)
			}
		})
		mw := taskmw.Idempotent(runs, "order4", key)
		n := testing.AllocsPerRun(200, func() {
			if err := mw(done).ProcessTask(ctx, small); err != nil {
				t.Fatal(err)
			}
		})
		if t.Logf("%v, by hand %v", n, run); n-run > 14 {
			t.Errorf("%v allocations, of which the run makes %v", n, run)
		}
	})
}
